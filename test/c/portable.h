/* portable.h - included before everything else (-include, with -U__linux__), it takes away what systems other than Linux do not have, as far
 * as headers go: what is named all the same, outside of #ifdef, does not compile. See `make PORTABLE=1`, and test_portable.rb.
 *
 * Numbers that our code asks for with #ifdef are undefined; glibc has them as enums of the same name, too, and these get
 * another name. What nobody has to ask for is poisoned. */
#define MSG_NOSIGNAL  linux_MSG_NOSIGNAL
#define MSG_MORE      linux_MSG_MORE
#define MSG_CMSG_CLOEXEC linux_MSG_CMSG_CLOEXEC
#define SOCK_CLOEXEC  linux_SOCK_CLOEXEC
#define SOCK_NONBLOCK linux_SOCK_NONBLOCK
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wcpp"
#include <arpa/inet.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <pwd.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>
#pragma GCC diagnostic pop

#undef MSG_NOSIGNAL
#undef MSG_MORE
#undef MSG_CMSG_CLOEXEC
#undef SOCK_CLOEXEC
#undef SOCK_NONBLOCK
#undef RWF_NOWAIT
#undef SYS_pidfd_open
#undef SYS_gettid
#undef TCP_QUICKACK
#undef TCP_CORK
#undef O_TMPFILE
#undef O_PATH
#undef O_DIRECT
#undef POLLRDHUP
#undef SO_PEERCRED
#undef F_SETPIPE_SZ
#undef F_GETPIPE_SZ
#undef F_ADD_SEALS
#undef MSG_ZEROCOPY

#pragma GCC poison epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_event
#pragma GCC poison eventfd signalfd timerfd_create timerfd_settime inotify_init inotify_init1
#pragma GCC poison pipe2 preadv2 pwritev2 vmsplice copy_file_range fallocate
#pragma GCC poison recvmmsg sendmmsg ppoll dup3 memfd_create gettid tgkill close_range pidfd_open
#pragma GCC poison sched_setaffinity sched_getaffinity setresuid setresgid prctl unshare
#pragma GCC poison clock_nanosleep mremap secure_getenv program_invocation_name
