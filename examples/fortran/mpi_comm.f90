! SPDX-License-Identifier: Apache-2.0
!> A comm of the ranks of the program's own communicator. With four processes or more, two do other work.
!>
!>     mpirun -n 4 ./mpi_comm
program mpi_comm
  use mpi
  use libzero
  implicit none
  integer :: error, level, rank, world, color
  integer, target :: trainers
  real(c_double), target :: loss
  type(c_ptr) :: comm

  ! With this level any thread may call, one at a time. Below it, only the thread that initialized MPI may.
  call mpi_init_thread(MPI_THREAD_SERIALIZED, level, error)
  call mpi_comm_rank(MPI_COMM_WORLD, rank, error)
  call mpi_comm_size(MPI_COMM_WORLD, world, error)
  color = merge(MPI_UNDEFINED, 0, world >= 4 .and. rank >= world - 2)
  call mpi_comm_split(MPI_COMM_WORLD, color, rank, trainers, error)
  if (trainers /= MPI_COMM_NULL) then
    call zero_check(zero_comm_create_mpi(comm, c_loc(trainers), c_sizeof(trainers), c_null_ptr), "zero_comm_create_mpi")
    loss = rank
    call zero_check(zero_comm_all_reduce(comm, c_loc(loss), 1_c_size_t, ZERO_FLOAT64, ZERO_SUM), "zero_comm_all_reduce")
    write (*, '(a, i0, a, i0, a, f0.1)') "rank ", zero_comm_rank(comm), " of ", zero_comm_world(comm), ": sum ", loss
    call zero_check(zero_comm_free(comm), "zero_comm_free")
    call mpi_comm_free(trainers, error) ! the program still owns it
  end if
  call mpi_finalize(error)
end program
