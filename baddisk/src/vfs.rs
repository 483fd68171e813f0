//! A file system (VFS) for SQLite: a copy of SQLite's own table of functions, in which those that change files are replaced. A replacement
//! calls the original and records the call. Files outside of watched directories are opened by the original, with its own functions.

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use rusqlite::ffi;

use crate::recording::FileNo;
use crate::{Event, Fault, Watched};

/// Watches a directory from now on.
pub(crate) fn watch(watched: &Arc<Watched>) {
    let mut registry = registry();
    registry.watched.retain(|known| known.strong_count() > 0);
    registry.watched.push(Arc::downgrade(watched));
}

static REGISTRY: LazyLock<Mutex<Registry>> = LazyLock::new(|| {
    install();
    Mutex::default()
});

#[derive(Default)]
struct Registry {
    watched: Vec<Weak<Watched>>,
    /// Open files, by the address of SQLite's file object.
    files: HashMap<usize, Open>,
}

#[derive(Clone)]
struct Open {
    watched: Arc<Watched>,
    file: FileNo,
    methods: &'static ffi::sqlite3_io_methods,
}

thread_local! {
    /// True if SQLite has opened a directory during the present call of this thread. It does so only to sync the names in it.
    static NAMES_SYNCED: Cell<bool> = const { Cell::new(false) };
}

/// SQLite's own table, and its own function that opens a directory.
static ORIGINAL: OnceLock<Original> = OnceLock::new();

struct Original {
    vfs: &'static ffi::sqlite3_vfs,
    open_directory: OpenDirectory,
}

// SAFETY: the table of a registered file system lives and stays the same until the process ends; SQLite uses it from all threads.
unsafe impl Send for Original {}
// SAFETY: likewise.
unsafe impl Sync for Original {}

type OpenDirectory = unsafe extern "C" fn(*const c_char, *mut c_int) -> c_int;

/// Registers our table as SQLite's default, and replaces the system call that opens directories.
fn install() {
    // SAFETY: SQLite gives its own table, which lives and stays the same until the process ends.
    let original = unsafe { ffi::sqlite3_vfs_find(std::ptr::null()).as_ref() };
    let vfs: &'static ffi::sqlite3_vfs = original.expect("SQLite has a file system of its own");
    let get = vfs.xGetSystemCall.expect("it is the one for Unix");
    let set = vfs.xSetSystemCall.expect("it is the one for Unix");
    let at = std::ptr::from_ref(vfs).cast_mut();
    let name = c"openDirectory".as_ptr();
    // SAFETY: the call of that name has this type (sqlite3.c, aSyscall); ours has it too.
    unsafe {
        let open_directory = get(at, name).expect("it opens directories");
        let open_directory = std::mem::transmute::<unsafe extern "C" fn(), OpenDirectory>(open_directory);
        ORIGINAL.get_or_init(|| Original { vfs, open_directory });
        let ours = std::mem::transmute::<OpenDirectory, unsafe extern "C" fn()>(record_open_directory);
        set(at, name, Some(ours));
    }
    let ours = ffi::sqlite3_vfs {
        zName: c"baddisk".as_ptr(),
        pNext: std::ptr::null_mut(),
        xOpen: Some(open),
        xDelete: Some(delete),
        ..*vfs
    };
    // SAFETY: SQLite keeps the table for as long as the process lives; so does the leak.
    unsafe { ffi::sqlite3_vfs_register(Box::leak(Box::new(ours)), 1) };
}

fn original() -> &'static Original {
    ORIGINAL.get().expect("nothing here is called before it is installed")
}

fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The watched directory that has this file, and the file's name in it. `None` if the file is in no watched directory.
fn watcher(path: *const c_char) -> Option<(Arc<Watched>, String)> {
    if path.is_null() {
        return None;
    }
    // SAFETY: SQLite's names are strings that end with a zero, and live during the call.
    let path = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes()));
    let name = path.file_name()?.to_str()?.to_owned();
    let watched = registry()
        .watched
        .iter()
        .filter_map(Weak::upgrade)
        .find(|it| path.parent() == Some(&it.directory))?;
    Some((watched, name))
}

unsafe extern "C" fn open(
    vfs: *mut ffi::sqlite3_vfs,
    path: ffi::sqlite3_filename,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    let open = original().vfs.xOpen.expect("every file system opens files");
    let Some((watched, name)) = watcher(path) else {
        // SAFETY: these are the caller's arguments; our table has the original's data and size of files.
        return unsafe { open(vfs, path, file, flags, out_flags) };
    };
    let mut state = watched.state();
    // SAFETY: as above.
    let code = unsafe { open(vfs, path, file, flags, out_flags) };
    if code != ffi::SQLITE_OK {
        return code;
    }
    // SAFETY: a file that was opened has a table, which lives until the process ends.
    let methods: &'static ffi::sqlite3_io_methods = unsafe { &*(*file).pMethods };
    let number = state.recording.open(&name);
    drop(state);
    let ours = ffi::sqlite3_io_methods {
        xClose: Some(close),
        xWrite: Some(write),
        xTruncate: Some(truncate),
        xSync: Some(sync),
        ..*methods
    };
    registry().files.insert(file as usize, Open { watched, file: number, methods });
    // SAFETY: the file is the caller's to fill in. A leak per open file is nothing in a test.
    unsafe { (*file).pMethods = Box::leak(Box::new(ours)) };
    code
}

unsafe extern "C" fn delete(vfs: *mut ffi::sqlite3_vfs, path: *const c_char, sync_names: c_int) -> c_int {
    let delete = original().vfs.xDelete.expect("every file system deletes files");
    let Some((watched, name)) = watcher(path) else {
        // SAFETY: these are the caller's arguments.
        return unsafe { delete(vfs, path, sync_names) };
    };
    let mut state = watched.state();
    NAMES_SYNCED.set(false);
    // SAFETY: these are the caller's arguments.
    let code = unsafe { delete(vfs, path, sync_names) };
    if code == ffi::SQLITE_OK {
        state.recording.delete(&name);
        if NAMES_SYNCED.get() {
            state.recording.add(Event::NamesSynced);
        }
    }
    code
}

fn find(file: *mut ffi::sqlite3_file) -> Open {
    registry()
        .files
        .get(&(file as usize))
        .cloned()
        .expect("only files that were opened here have these functions")
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    let open = find(file);
    registry().files.remove(&(file as usize));
    let close = open.methods.xClose.expect("every file is closed");
    // SAFETY: the caller's argument.
    unsafe { close(file) }
}

unsafe extern "C" fn write(
    file: *mut ffi::sqlite3_file,
    from: *const c_void,
    length: c_int,
    at: i64,
) -> c_int {
    let open = find(file);
    let mut state = open.watched.state();
    match state.fails(&[Fault::Full, Fault::Writes]) {
        Some(Fault::Full) => return ffi::SQLITE_FULL,
        Some(_) => return ffi::SQLITE_IOERR_WRITE,
        None => {}
    }
    let write = open.methods.xWrite.expect("every file is written");
    // SAFETY: these are the caller's arguments.
    let code = unsafe { write(file, from, length, at) };
    if code == ffi::SQLITE_OK {
        // SAFETY: the caller's buffer has this many bytes.
        let bytes =
            unsafe { std::slice::from_raw_parts(from.cast::<u8>(), usize::try_from(length).unwrap_or(0)) };
        let event = Event::Wrote { file: open.file, at: at.cast_unsigned(), bytes: bytes.into() };
        state.recording.add(event);
    }
    code
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, length: i64) -> c_int {
    let open = find(file);
    let mut state = open.watched.state();
    let truncate = open.methods.xTruncate.expect("every file can be cut");
    // SAFETY: these are the caller's arguments.
    let code = unsafe { truncate(file, length) };
    if code == ffi::SQLITE_OK {
        state.recording.add(Event::Resized { file: open.file, length: length.cast_unsigned() });
    }
    code
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, flags: c_int) -> c_int {
    let open = find(file);
    let mut state = open.watched.state();
    if state.fails(&[Fault::Syncs]).is_some() {
        state.recording.add(Event::SyncFailed(open.file));
        return ffi::SQLITE_IOERR_FSYNC;
    }
    let sync = open.methods.xSync.expect("every file can be synced");
    NAMES_SYNCED.set(false);
    // SAFETY: these are the caller's arguments.
    let code = unsafe { sync(file, flags) };
    if code == ffi::SQLITE_OK {
        state.recording.add(Event::Synced(open.file));
        if NAMES_SYNCED.get() {
            state.recording.add(Event::NamesSynced);
        }
    }
    code
}

/// Replaces SQLite's `openDirectory`, and records in [`NAMES_SYNCED`] that it was called.
unsafe extern "C" fn record_open_directory(path: *const c_char, descriptor: *mut c_int) -> c_int {
    NAMES_SYNCED.set(true);
    // SAFETY: these are the caller's arguments.
    unsafe { (original().open_directory)(path, descriptor) }
}
