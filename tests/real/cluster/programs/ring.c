/* Each rank says where it is, and what the ranks of all sum up to: only one world of all of them can know that. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int rank, size, length, sum;
    char host[MPI_MAX_PROCESSOR_NAME], line[MPI_MAX_PROCESSOR_NAME + 80];

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Get_processor_name(host, &length);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    length = snprintf(line, sizeof line, "rank %d of %d on %s, sum %d\n", rank, size, host, sum);
    if (write(1, line, length) != length) /* whole: lines of several ranks meet in one file */
        return 1;
    if (argc > 1)
        sleep(atoi(argv[1]));
    MPI_Finalize();
    return 0;
}
