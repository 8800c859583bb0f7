// A CUDA driver for tests: it counts memory, orders copies and computes nothing; every other call succeeds. Tests build
// it and find it in place of NVIDIA's through LD_LIBRARY_PATH, so that they can see a run's memory without a GPU.
//
//   RESEED_STUB=FILE         at exit: the most bytes allocated at once, and the number of allocations
//   RESEED_STUB_RACES=FILE   at exit: pairs of copies that touch the same bytes, one of them writing, in no order that
//                            events or synchronisation give; and the number of copies
//   RESEED_STUB_THIEF=N:M    another process takes all free memory but M MiB just before allocation N
//   RESEED_STUB_PINS=HOW     the driver pins: "ours" only memory that the program allocated, "refused" only its own
//                            although it promises both, "none" nothing; by default only its own
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long u64;
typedef int Answer;

static const u64 TOTAL = 140ull << 30;
static u64 used = 560ull << 20, most, next = 1ull << 40;                  // a context needs memory too
static u64 stolen;
static int allocations;
static struct { u64 at, bytes; } parts[1 << 16];
static int count;

// How far each stream has come, as seen from somewhere: operations of every stream that have ended there.
enum { STREAMS = 32, REMEMBERED = 1024 };
typedef struct { int done[STREAMS]; } Clock;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Clock streams[STREAMS], host;                                      // what an operation queued now comes after
static int streams_made;
static struct { u64 at, bytes; int writes, stream, number; } copies[REMEMBERED];
static long copied, races;

static void report_to(const char* variable, u64 a, long b) {
    const char* path = getenv(variable);
    FILE* file = path ? fopen(path, "w") : NULL;
    if (file) fprintf(file, "%llu %ld", a, b), fclose(file);
}
__attribute__((destructor)) static void report(void) {
    report_to("RESEED_STUB", most, allocations);
    report_to("RESEED_STUB_RACES", races, copied);
}

static void merge(Clock* to, const Clock* from) {
    for (int i = 0; i < STREAMS; i++) if (to->done[i] < from->done[i]) to->done[i] = from->done[i];
}
// A part of a copy that is operation `number` of its stream; host and device addresses do not overlap.
static void touch(int stream, int number, u64 at, u64 bytes, int writes) {
    for (int i = 0; i < REMEMBERED && i < copied; i++) {
        const int together = at < copies[i].at + copies[i].bytes && copies[i].at < at + bytes;
        const int ordered = copies[i].number <= streams[stream].done[copies[i].stream];
        if (together && (writes || copies[i].writes) && !ordered) races++;
    }
    const int slot = copied++ % REMEMBERED;
    copies[slot].at = at, copies[slot].bytes = bytes, copies[slot].writes = writes;
    copies[slot].stream = stream, copies[slot].number = number;
}
static Answer copy(u64 to, u64 from, size_t bytes, void* handle) {
    const int stream = (int)(size_t)handle - 1;
    pthread_mutex_lock(&lock);
    merge(&streams[stream], &host);
    const int number = streams[stream].done[stream] + 1;
    if (from) touch(stream, number, from, bytes, 0);
    touch(stream, number, to, bytes, 1);
    streams[stream].done[stream] = number;                                // the stream's next operation comes after it
    return pthread_mutex_unlock(&lock), 0;
}
Answer cuMemcpyHtoDAsync_v2(u64 to, const void* from, size_t n, void* stream) { return copy(to, (u64)from, n, stream); }
Answer cuMemcpyDtoHAsync_v2(void* to, u64 from, size_t n, void* stream) { return copy((u64)to, from, n, stream); }
Answer cuMemcpyDtoDAsync_v2(u64 to, u64 from, size_t n, void* stream) { return copy(to, from, n, stream); }
Answer cuMemsetD8Async(u64 to, unsigned char value, size_t n, void* stream) { return copy(to, 0, n, stream); }

Answer cuStreamCreateWithPriority(void** stream, unsigned flags, int priority) {
    return streams_made < STREAMS ? *stream = (void*)(size_t)++streams_made, 0 : 2;
}
Answer cuEventCreate(void** event, unsigned flags) { return *event = calloc(1, sizeof(Clock)), 0; }
Answer cuEventDestroy_v2(void* event) { return free(event), 0; }

#define LOCKED(work) (pthread_mutex_lock(&lock), work, pthread_mutex_unlock(&lock), 0)
#define CLOCK(handle) (&streams[(int)(size_t)(handle) - 1])
static void record(Clock* event, const Clock* stream) { *event = *stream, merge(event, &host); }
static void wait_all(void) { for (int i = 0; i < STREAMS; i++) merge(&host, &streams[i]); }
Answer cuEventRecord(void* event, void* stream) { return LOCKED(record(event, CLOCK(stream))); }
Answer cuStreamWaitEvent(void* stream, void* event, unsigned flags) { return LOCKED(merge(CLOCK(stream), event)); }
Answer cuEventSynchronize(void* event) { return LOCKED(merge(&host, event)); }
Answer cuStreamSynchronize(void* stream) { return LOCKED(merge(&host, CLOCK(stream))); }
Answer cuCtxSynchronize(void) { return LOCKED(wait_all()); }

Answer cuMemAlloc_v2(u64* at, size_t bytes) {
    const char* thief = getenv("RESEED_STUB_THIEF");
    int when = 0, left = 0;
    if (thief) sscanf(thief, "%d:%d", &when, &left);
    if (++allocations == when) stolen = TOTAL - used - ((u64)left << 20);
    if (used + stolen + bytes > TOTAL || count == 1 << 16) return 2;
    *at = next, next += (bytes + 511) / 512 * 512;
    parts[count].at = *at, parts[count++].bytes = bytes;
    used += bytes;
    if (used > most) most = used;
    return 0;
}
Answer cuMemFree_v2(u64 at) {
    for (int i = 0; i < count; i++) {
        if (parts[i].at != at) continue;
        used -= parts[i].bytes, parts[i] = parts[--count];
        return 0;
    }
    return 1;
}
Answer cuMemGetInfo_v2(size_t* free, size_t* total) { return *total = TOTAL, *free = TOTAL - used - stolen, 0; }
static int pins(const char* how) {
    const char* chosen = getenv("RESEED_STUB_PINS");
    return chosen && !strcmp(chosen, how);
}
Answer cuMemHostAlloc(void** at, size_t bytes, unsigned flags) {
    return *at = pins("ours") || pins("none") ? NULL : calloc(1, bytes), *at ? 0 : 2;
}
Answer cuMemHostRegister_v2(void* at, size_t bytes, unsigned flags) { return pins("refused") ? 801 : 0; }
Answer cuMemFreeHost(void* at) { return free(at), 0; }

Answer cuDeviceGetAttribute(int* value, int attribute, int device) {
    if (attribute == 99) return *value = pins("ours") || pins("refused"), 0;                   // registers host memory
    const char* capability = getenv("RESEED_STUB_CAPABILITY");
    if (!capability) capability = "9.0";
    if (attribute == 75 || attribute == 76) return *value = capability[attribute == 75 ? 0 : 2] - '0', 0;
    return *value = attribute == 16 ? 132 : 1, 0;  // SMs
}
Answer cuDeviceGetName(char* name, int length, int device) { return strncpy(name, "stub", length), 0; }
Answer cuDeviceTotalMem_v2(size_t* bytes, int device) { return *bytes = TOTAL, 0; }
Answer cuDeviceGetCount(int* devices) { return *devices = 1, 0; }
Answer cuDeviceGet(int* device, int ordinal) { return *device = 0, 0; }
Answer cuDriverGetVersion(int* version) { return *version = 13000, 0; }
Answer cuGetErrorName(int error, const char** text) { return *text = "stub", 0; }
Answer cuGetErrorString(int error, const char** text) { return *text = "stub", 0; }
Answer cuEventElapsedTime_v2(float* milliseconds, void* from, void* to) { return *milliseconds = 1, 0; }
Answer cuModuleGetGlobal_v2(u64* at, size_t* bytes, void* module, const char* name) {
    return *at = 4096, *bytes = 4, 0;
}
Answer cuEventQuery(void* event) { return 600; }                          // never done: the slowest GPU
Answer cuTensorMapEncodeTiled(void* map) { return memset(map, 0, 128), 0; }

#define HANDLE(name, ...) Answer name(void** handle, ##__VA_ARGS__) { return *handle = (void*)1, 0; }
HANDLE(cuDevicePrimaryCtxRetain, int device)
HANDLE(cuModuleLoadData, const void* image)
HANDLE(cuModuleGetFunction, void* module, const char* name)

#define NOTHING(name) Answer name(void) { return 0; }
NOTHING(cuInit)
NOTHING(cuCtxSetCurrent)
NOTHING(cuDevicePrimaryCtxRelease_v2)
NOTHING(cuModuleUnload)
NOTHING(cuFuncSetAttribute)
NOTHING(cuStreamDestroy_v2)
NOTHING(cuMemHostUnregister)
NOTHING(cuLaunchKernel)
