//! A child process together with all processes that it starts.

#[cfg(not(windows))]
pub(super) use unix::Group;
#[cfg(windows)]
pub(super) use windows::Group;

/// The process group of a child that is its leader.
#[cfg(not(windows))]
mod unix {
    use std::process::Child;

    pub struct Group(u32);

    impl Group {
        pub fn of(leader: &Child) -> Group {
            Group(leader.id())
        }

        /// Kills all processes of the group. The leader was not waited for, or a member is still alive, so that the
        /// number is in use.
        pub fn kill(&self) {
            // SAFETY: the call takes integers only. It fails if the group has no process left.
            unsafe { libc::kill(-(self.0 as libc::pid_t), libc::SIGKILL) };
        }

        /// A number that changes when a process of the group computes, reads or writes.
        #[cfg(target_os = "linux")]
        pub fn signs_of_life(&self) -> Option<u64> {
            let mut life = 0u64;
            for entry in std::fs::read_dir("/proc").ok()?.flatten() {
                let path = entry.path();
                let is_process = entry.file_name().to_str().is_some_and(|name| name.parse::<u32>().is_ok());
                if !is_process {
                    continue;
                }
                // A process may end at any moment.
                let Ok(stat) = std::fs::read_to_string(path.join("stat")) else { continue };
                // The name in parentheses may hold spaces. After it: state, parent, group, ..., user time, system time.
                let Some((_, fields)) = stat.rsplit_once(')') else { continue };
                let fields: Vec<u64> = fields.split_whitespace().map(|field| field.parse().unwrap_or(0)).collect();
                if fields.get(2) != Some(&u64::from(self.0)) {
                    continue;
                }
                let ticks = [11, 12].iter().filter_map(|at| fields.get(*at));
                life = ticks.fold(life, |sum, ticks| sum.wrapping_add(*ticks));
                let io = std::fs::read_to_string(path.join("io")).unwrap_or_default();
                let counts = io.lines().filter_map(|line| line.split_once(": ")?.1.parse::<u64>().ok());
                life = counts.fold(life, u64::wrapping_add);
            }
            Some(life)
        }

        /// Unknown: the system does not tell.
        #[cfg(not(target_os = "linux"))]
        pub fn signs_of_life(&self) -> Option<u64> {
            None
        }
    }
}

/// A job object of Windows. Its processes end with this process too.
#[cfg(windows)]
mod windows {
    use std::mem::size_of;
    use std::os::windows::io::{AsHandle, AsRawHandle, FromRawHandle, OwnedHandle};
    use std::process::Child;
    use std::ptr::{from_mut, from_ref, null};

    use windows_sys::Win32::Foundation::FILETIME;
    use windows_sys::Win32::System::JobObjects::{
        AssignProcessToJobObject, CreateJobObjectW, JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE,
        JOBOBJECT_BASIC_AND_IO_ACCOUNTING_INFORMATION, JOBOBJECT_EXTENDED_LIMIT_INFORMATION,
        JobObjectBasicAndIoAccountingInformation, JobObjectExtendedLimitInformation, QueryInformationJobObject,
        SetInformationJobObject, TerminateJobObject,
    };
    use windows_sys::Win32::System::Threading::{GetProcessIoCounters, GetProcessTimes, IO_COUNTERS, TerminateProcess};

    pub struct Group {
        /// `None` where the system refuses one.
        job: Option<OwnedHandle>,
        leader: Option<OwnedHandle>,
    }

    impl Group {
        pub fn of(leader: &Child) -> Group {
            Group { job: job(leader), leader: leader.as_handle().try_clone_to_owned().ok() }
        }

        /// Kills all processes of the group.
        pub fn kill(&self) {
            if let Some(job) = &self.job {
                // SAFETY: the handle is open. The call fails if the processes have ended.
                unsafe { TerminateJobObject(job.as_raw_handle(), 1) };
            }
            if let Some(leader) = &self.leader {
                // SAFETY: the handle is open. The call fails if the process has ended.
                unsafe { TerminateProcess(leader.as_raw_handle(), 1) };
            }
        }

        /// A number that changes when a process of the group computes, reads or writes.
        pub fn signs_of_life(&self) -> Option<u64> {
            self.life_of_job().or_else(|| self.life_of_leader())
        }

        fn life_of_job(&self) -> Option<u64> {
            let mut counts = JOBOBJECT_BASIC_AND_IO_ACCOUNTING_INFORMATION::default();
            let bytes = size_of_val(&counts) as u32;
            let (class, at) = (JobObjectBasicAndIoAccountingInformation, from_mut(&mut counts).cast());
            let job = self.job.as_ref()?.as_raw_handle();
            // SAFETY: the handle is open, and the structure has the size and the type that the class fills.
            let known = unsafe { QueryInformationJobObject(job, class, at, bytes, std::ptr::null_mut()) } != 0;
            let times = [counts.BasicInfo.TotalUserTime, counts.BasicInfo.TotalKernelTime];
            let times = times.iter().fold(0u64, |sum, time| sum.wrapping_add(*time as u64));
            known.then(|| times.wrapping_add(sum(&counts.IoInfo)))
        }

        fn life_of_leader(&self) -> Option<u64> {
            let leader = self.leader.as_ref()?.as_raw_handle();
            let (mut io, mut times) = (IO_COUNTERS::default(), [FILETIME::default(); 4]);
            // SAFETY: the handle is open, and the structure is writable.
            let has_io = unsafe { GetProcessIoCounters(leader, &mut io) } != 0;
            let [start, end, kernel, user] = &mut times;
            // SAFETY: the same.
            let has_times = unsafe { GetProcessTimes(leader, start, end, kernel, user) } != 0;
            let ticks = |time: &FILETIME| u64::from(time.dwHighDateTime) << 32 | u64::from(time.dwLowDateTime);
            let life = sum(&io).wrapping_add(ticks(&times[2])).wrapping_add(ticks(&times[3]));
            (has_io || has_times).then_some(life)
        }
    }

    fn sum(io: &IO_COUNTERS) -> u64 {
        let operations = [io.ReadOperationCount, io.WriteOperationCount, io.OtherOperationCount];
        let bytes = [io.ReadTransferCount, io.WriteTransferCount, io.OtherTransferCount];
        operations.iter().chain(&bytes).fold(0, |sum, count| sum.wrapping_add(*count))
    }

    /// A job with this process, which is killed when the job is closed.
    fn job(leader: &Child) -> Option<OwnedHandle> {
        // SAFETY: both arguments may be null.
        let job = unsafe { CreateJobObjectW(null(), null()) };
        if job.is_null() {
            return None;
        }
        // SAFETY: the handle is new and has no other owner.
        let job = unsafe { OwnedHandle::from_raw_handle(job) };
        let mut limits = JOBOBJECT_EXTENDED_LIMIT_INFORMATION::default();
        limits.BasicLimitInformation.LimitFlags = JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE;
        let (class, bytes) = (JobObjectExtendedLimitInformation, size_of::<JOBOBJECT_EXTENDED_LIMIT_INFORMATION>());
        // SAFETY: the handle is open, and the structure has the size and the type of the class. Without the limit the
        // job works as well, but its processes outlive this one.
        unsafe { SetInformationJobObject(job.as_raw_handle(), class, from_ref(&limits).cast(), bytes as u32) };
        // SAFETY: both handles are open.
        let assigned = unsafe { AssignProcessToJobObject(job.as_raw_handle(), leader.as_raw_handle()) } != 0;
        assigned.then_some(job)
    }
}
