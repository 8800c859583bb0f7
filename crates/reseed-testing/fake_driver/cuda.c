// A driver for a card that computes nothing: memory is counted, all else succeeds. Built by tests, found in place of NVIDIA's
// through the loader's path, so that what a run takes of a card can be seen where there is none. At the end the most bytes
// that were taken at once, and how often memory was asked for, are written to the file that RESEED_STUB names. With
// RESEED_STUB_THIEF=N:M someone else takes all that is free but M MiB just before memory is asked for the Nth time. It
// pins nothing that it has not allocated itself; with RESEED_STUB_PINS=ours nothing else, with "refused" it only says so, and with
// "none" it pins nothing at all.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long u64;
typedef int Answer;

static const u64 TOTAL = 140ull << 30;
static u64 taken = 560ull << 20, most, next = 1ull << 40;                 // a context takes something too
static u64 stolen;
static int asked;
static struct { u64 at, bytes; } parts[1 << 16];
static int count;

__attribute__((destructor)) static void report(void) {
    const char* path = getenv("RESEED_STUB");
    FILE* file = path ? fopen(path, "w") : NULL;
    if (file) fprintf(file, "%llu %d", most, asked), fclose(file);
}

Answer cuMemAlloc_v2(u64* at, size_t bytes) {
    const char* thief = getenv("RESEED_STUB_THIEF");
    int when = 0, left = 0;
    if (thief) sscanf(thief, "%d:%d", &when, &left);
    if (++asked == when) stolen = TOTAL - taken - ((u64)left << 20);
    if (taken + stolen + bytes > TOTAL || count == 1 << 16) return 2;
    *at = next, next += (bytes + 511) / 512 * 512;
    parts[count].at = *at, parts[count++].bytes = bytes;
    taken += bytes;
    if (taken > most) most = taken;
    return 0;
}
Answer cuMemFree_v2(u64 at) {
    for (int i = 0; i < count; i++) {
        if (parts[i].at != at) continue;
        taken -= parts[i].bytes, parts[i] = parts[--count];
        return 0;
    }
    return 1;
}
Answer cuMemGetInfo_v2(size_t* free, size_t* total) { return *total = TOTAL, *free = TOTAL - taken - stolen, 0; }
static int pins(const char* how) {
    const char* said = getenv("RESEED_STUB_PINS");
    return said && !strcmp(said, how);
}
Answer cuMemHostAlloc(void** at, size_t bytes, unsigned flags) {
    return *at = pins("ours") || pins("none") ? NULL : calloc(1, bytes), *at ? 0 : 2;
}
Answer cuMemHostRegister_v2(void* at, size_t bytes, unsigned flags) { return pins("refused") ? 801 : 0; }
Answer cuMemFreeHost(void* at) { return free(at), 0; }

Answer cuDeviceGetAttribute(int* value, int attribute, int device) {
    if (attribute == 99) return *value = pins("ours") || pins("refused"), 0;                   // pins what it is given
    return *value = attribute == 75 ? 9 : attribute == 76 ? 0 : attribute == 16 ? 132 : 1, 0;  // 9.0, multiprocessors
}
Answer cuDeviceGetName(char* name, int length, int device) { return strncpy(name, "stub", length), 0; }
Answer cuDeviceTotalMem_v2(size_t* bytes, int device) { return *bytes = TOTAL, 0; }
Answer cuDeviceGetCount(int* devices) { return *devices = 1, 0; }
Answer cuDeviceGet(int* device, int ordinal) { return *device = 0, 0; }
Answer cuDriverGetVersion(int* version) { return *version = 13000, 0; }
Answer cuGetErrorName(int error, const char** text) { return *text = "stub", 0; }
Answer cuGetErrorString(int error, const char** text) { return *text = "stub", 0; }
Answer cuEventElapsedTime_v2(float* milliseconds, void* from, void* to) { return *milliseconds = 1, 0; }
Answer cuModuleGetGlobal_v2(u64* at, size_t* bytes, void* module, const char* name) { return *at = 4096, *bytes = 4, 0; }
Answer cuEventQuery(void* event) { return 600; }                          // never: the most that a run can meet
Answer cuTensorMapEncodeTiled(void* map) { return memset(map, 0, 128), 0; }

#define HANDLE(name, ...) Answer name(void** handle, ##__VA_ARGS__) { return *handle = (void*)1, 0; }
HANDLE(cuDevicePrimaryCtxRetain, int device)
HANDLE(cuModuleLoadData, const void* image)
HANDLE(cuModuleGetFunction, void* module, const char* name)
HANDLE(cuStreamCreate, unsigned flags)
HANDLE(cuEventCreate, unsigned flags)

#define NOTHING(name) Answer name(void) { return 0; }
NOTHING(cuInit)
NOTHING(cuCtxSetCurrent)
NOTHING(cuCtxSynchronize)
NOTHING(cuDevicePrimaryCtxRelease_v2)
NOTHING(cuModuleUnload)
NOTHING(cuFuncSetAttribute)
NOTHING(cuStreamDestroy_v2)
NOTHING(cuStreamSynchronize)
NOTHING(cuStreamWaitEvent)
NOTHING(cuEventDestroy_v2)
NOTHING(cuEventRecord)
NOTHING(cuEventSynchronize)
NOTHING(cuMemHostUnregister)
NOTHING(cuMemcpyHtoDAsync_v2)
NOTHING(cuMemcpyDtoHAsync_v2)
NOTHING(cuMemcpyDtoDAsync_v2)
NOTHING(cuMemsetD8Async)
NOTHING(cuLaunchKernel)
