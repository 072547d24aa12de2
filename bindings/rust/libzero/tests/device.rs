// SPDX-License-Identifier: Apache-2.0
//! Tests memory and streams of a GPU as far as possible on a machine without a GPU.
use std::ptr;

use libzero::{Comm, Deadlines, DeviceParam, DeviceSlice, Optim, Options, Shape, Stream};

fn on_the_host() -> Optim {
    let comm = Comm::solo(Deadlines::default()).unwrap();
    Optim::new(&comm, &Options::default()).unwrap()
}

fn slice(len: usize) -> DeviceSlice {
    // SAFETY: No optimizer accepts the slice, and no code accesses the address.
    unsafe { DeviceSlice::new(4096 as *mut f32, len) }
}

#[test]
fn a_slice_that_is_too_short_is_refused_by_name() {
    let mut optim = on_the_host();
    let shape = Shape::new("w", &[2, 3]);
    let short = DeviceParam { shape: shape.clone(), data: slice(5), grad: None };
    let error = optim.register_device(&[short], &[]).unwrap_err();
    assert_eq!(error.message(), "parameter 'w' has 5 elements, but its shape has 6");
    let short = DeviceParam { shape, data: slice(6), grad: Some(slice(4)) };
    let error = optim.register_device(&[short], &[]).unwrap_err();
    assert_eq!(error.message(), "gradient of parameter 'w' has 4 elements, but its shape has 6");
}

#[test]
fn a_comm_on_the_host_takes_neither_memory_nor_streams_of_a_gpu() {
    let mut optim = on_the_host();
    let param = DeviceParam { shape: Shape::new("w", &[2]), data: slice(2), grad: None };
    let error = optim.register_device(&[param], &[]).unwrap_err();
    assert!(error.message().contains("the comm is on the host"), "{error}");
    let error = optim.set_stream(Stream::DEFAULT).unwrap_err();
    assert!(error.message().contains("there are no streams"), "{error}");
}

#[test]
fn a_stream_goes_along_with_a_call() {
    let mut optim = on_the_host();
    optim.add(&[Shape::new("w", &[2])], &[]).unwrap();
    // SAFETY: The library rejects the stream without using it.
    let stream = unsafe { Stream::from_raw(64 as *mut _) };
    let error = optim.param_wait_on(None, stream).unwrap_err();
    assert!(error.message().contains("stream must be NULL on the host"), "{error}");
    // SAFETY: See above. Null means that there is no gradient.
    let error = unsafe { optim.grad_ready_on(0, ptr::null_mut(), stream) }.unwrap_err();
    assert!(error.message().contains("stream must be NULL on the host"), "{error}");
}
