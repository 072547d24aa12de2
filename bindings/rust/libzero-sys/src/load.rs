// SPDX-License-Identifier: Apache-2.0
//! The functions of zero.h. The features `link` and `static` link them. Without these features, the
//! first call looks them up in libzero.so.
// Without an allocator, an error must contain its text.
#![allow(clippy::result_large_err)]

/// Declares functions. The declarations are the same with and without linking.
macro_rules! functions {
    (
        $(pub safe fn $safe:ident($($safe_name:ident: $safe_type:ty),* $(,)?) -> $safe_result:ty;)*
        $(pub fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $result:ty;)*
    ) => {
        #[cfg(any(feature = "link", feature = "static"))]
        unsafe extern "C" {
            $(pub safe fn $safe($($safe_name: $safe_type),*) -> $safe_result;)*
            $(pub fn $name($($arg: $type),*) -> $result;)*
        }

        #[cfg(not(any(feature = "link", feature = "static")))]
        pub(crate) mod looked_up {
            use super::*;

            #[derive(Clone, Copy)]
            enum Function { $($safe,)* $($name,)* }

            pub(crate) static NAMES: &[&str] = &[
                $(concat!(stringify!($safe), "\0"),)*
                $(concat!(stringify!($name), "\0"),)*
            ];
            pub(crate) static ADDRESSES: [core::sync::atomic::AtomicPtr<c_void>; NAMES.len()] =
                [const { core::sync::atomic::AtomicPtr::new(core::ptr::null_mut()) }; NAMES.len()];

            $(#[inline] pub fn $safe($($safe_name: $safe_type),*) -> $safe_result {
                let address = crate::load::address(Function::$safe as usize);
                type Declared = unsafe extern "C" fn($($safe_type),*) -> $safe_result;
                // SAFETY: `address` is the function of zero.h with this name, which has this type.
                let function: Declared = unsafe { core::mem::transmute(address) };
                // SAFETY: This function accepts any values.
                unsafe { function($($safe_name),*) }
            })*

            $(
            /// # Safety
            ///
            /// The requirements are in zero.h, at the function with this name.
            #[inline] pub unsafe fn $name($($arg: $type),*) -> $result {
                let address = crate::load::address(Function::$name as usize);
                type Declared = unsafe extern "C" fn($($type),*) -> $result;
                // SAFETY: `address` is the function of zero.h with this name, which has this type.
                let function: Declared = unsafe { core::mem::transmute(address) };
                // SAFETY: The caller guarantees the requirements of the function.
                unsafe { function($($arg),*) }
            })*
        }
        #[cfg(not(any(feature = "link", feature = "static")))]
        pub use looked_up::*;
    };
}

/// The reason why libzero.so could not be loaded. It lists each place that was searched, with the
/// loader's message.
#[derive(Clone, Copy)]
pub struct LoadError {
    text: [u8; 1024],
    length: usize,
}

impl LoadError {
    #[cfg(not(any(feature = "link", feature = "static")))]
    fn new() -> LoadError {
        LoadError { text: [0; 1024], length: 0 }
    }

    /// Returns the text.
    pub fn message(&self) -> &str {
        let text = &self.text[..self.length];
        match core::str::from_utf8(text) {
            Ok(text) => text,
            // Drop an incomplete character at the end.
            Err(error) => core::str::from_utf8(&text[..error.valid_up_to()]).unwrap_or_default(),
        }
    }
}

/// Truncates text that is too long.
impl core::fmt::Write for LoadError {
    fn write_str(&mut self, words: &str) -> core::fmt::Result {
        let count = words.len().min(self.text.len() - self.length);
        self.text[self.length..][..count].copy_from_slice(&words.as_bytes()[..count]);
        self.length += count;
        Ok(())
    }
}

impl core::fmt::Display for LoadError {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str(self.message())
    }
}

impl core::fmt::Debug for LoadError {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str(self.message())
    }
}

impl core::error::Error for LoadError {}

/// Does nothing, because the library is linked.
#[cfg(any(feature = "link", feature = "static"))]
pub fn load() -> Result<(), LoadError> {
    Ok(())
}

#[cfg(not(any(feature = "link", feature = "static")))]
mod dynamic {
    use core::ffi::{CStr, c_char, c_int, c_void};
    use core::fmt::Write;
    use core::sync::atomic::{AtomicBool, Ordering};

    use super::LoadError;
    use crate::zero_h::looked_up::{ADDRESSES, NAMES};
    use crate::{ZERO_VERSION_MAJOR, ZERO_VERSION_MINOR};

    const RTLD_NOW: c_int = 2;
    const PATH_BYTES: usize = 4096;

    #[link(name = "dl")]
    unsafe extern "C" {
        fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
        fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
        fn dlerror() -> *const c_char;
        fn getenv(name: *const c_char) -> *const c_char;
    }

    static LOADED: AtomicBool = AtomicBool::new(false);

    /// Loads libzero.so unless it has been loaded. LIBZERO_PATH may name the file or its folder. If
    /// it is not set, the system loader searches for the library. Functions of zero.h call this
    /// themselves, and panic if it returns an error.
    pub fn load() -> Result<(), LoadError> {
        if LOADED.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut error = LoadError::new();
        let library = find(&mut error)?;
        check_version(library, &mut error)?;
        // Threads that run this concurrently store the same addresses.
        for (name, address) in NAMES.iter().zip(&ADDRESSES) {
            // SAFETY: The names end with a NUL.
            let found = unsafe { dlsym(library, name.as_ptr().cast()) };
            if found.is_null() {
                let name = name.trim_end_matches('\0');
                let _ = write!(error, "libzero.so has no {name}: it is older than this crate");
                return Err(error);
            }
            address.store(found, Ordering::Relaxed);
        }
        LOADED.store(true, Ordering::Release);
        Ok(())
    }

    pub(crate) fn address(function: usize) -> *mut c_void {
        if let Err(error) = load() {
            panic!("{error}");
        }
        ADDRESSES[function].load(Ordering::Relaxed)
    }

    fn find(error: &mut LoadError) -> Result<*mut c_void, LoadError> {
        let _ = write!(
            error,
            "libzero.so was not found; set LIBZERO_PATH to the file or its folder. Tried:"
        );
        // SAFETY: The name ends with a NUL. Writing the environment concurrently would be unsound
        // in the code that writes it.
        let given = unsafe { getenv(c"LIBZERO_PATH".as_ptr()) };
        let names = [c"libzero.so.0.2", c"libzero.so"];
        let found = if given.is_null() {
            names.into_iter().find_map(|name| open(name, error))
        } else {
            // SAFETY: Values in the environment end with a NUL.
            let given = unsafe { CStr::from_ptr(given) };
            open(given, error).or_else(|| {
                names.into_iter().find_map(|name| {
                    let mut path = [0; PATH_BYTES];
                    open(join(given, name, &mut path)?, error)
                })
            })
        };
        found.ok_or(*error)
    }

    fn join<'a>(folder: &CStr, name: &CStr, path: &'a mut [u8; PATH_BYTES]) -> Option<&'a CStr> {
        let (folder, name) = (folder.to_bytes(), name.to_bytes_with_nul());
        let end = folder.len() + 1 + name.len();
        path.get_mut(..folder.len())?.copy_from_slice(folder);
        *path.get_mut(folder.len())? = b'/';
        path.get_mut(folder.len() + 1..end)?.copy_from_slice(name);
        CStr::from_bytes_with_nul(&path[..end]).ok()
    }

    fn open(path: &CStr, error: &mut LoadError) -> Option<*mut c_void> {
        // SAFETY: libzero.so runs no code when it is loaded.
        let library = unsafe { dlopen(path.as_ptr(), RTLD_NOW) };
        if !library.is_null() {
            return Some(library);
        }
        // SAFETY: The loader's text ends with a NUL and is valid on this thread until its next
        // call.
        let why = unsafe { dlerror() };
        let why = if why.is_null() {
            c"no reason was given"
        } else {
            // SAFETY: See above.
            unsafe { CStr::from_ptr(why) }
        };
        let _ = write!(error, " {};", why.to_str().unwrap_or("a path that is not UTF-8"));
        None
    }

    /// Before version 1.0, a new minor version may break the ABI.
    fn check_version(library: *mut c_void, error: &mut LoadError) -> Result<(), LoadError> {
        // SAFETY: The name ends with a NUL.
        let function = unsafe { dlsym(library, c"zero_version".as_ptr()) };
        *error = LoadError::new();
        if function.is_null() {
            let _ = write!(
                error,
                "libzero.so has no zero_version: it is another library with that name"
            );
            return Err(*error);
        }
        // SAFETY: Every version of zero.h declares the function with this type.
        let function: extern "C" fn() -> u32 = unsafe { core::mem::transmute(function) };
        let (found, wanted) = (function() / 100, ZERO_VERSION_MAJOR * 100 + ZERO_VERSION_MINOR);
        if found == wanted {
            return Ok(());
        }
        let (major, minor) = (found / 100, found % 100);
        let _ = write!(
            error,
            "libzero.so is version {major}.{minor}, but this crate needs {ZERO_VERSION_MAJOR}.{ZERO_VERSION_MINOR}"
        );
        Err(*error)
    }
}

#[cfg(not(any(feature = "link", feature = "static")))]
pub(crate) use dynamic::address;
#[cfg(not(any(feature = "link", feature = "static")))]
pub use dynamic::load;
