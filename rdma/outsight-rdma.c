// SPDX-License-Identifier: Apache-2.0
// outsight-rdma does RDMA for Outsight, on libibverbs, so that the main programs need no C library.
//
//   outsight-rdma serve [DEVICE]   registers memory that others read (started by the agent)
//   outsight-rdma read  [DEVICE]   reads memory of another host (started by "outsight collect --transport rdma")
//
// DEVICE is as in "rdma link" (rxe0, mlx5_0); without it the first one with an active port 1 is used. Descriptor 3 is a
// unix socket of the kind SOCK_SEQPACKET, on which the program that started this one asks and is answered, one message
// after the other; docs/format/region-rdma.md has their layout. The first message is a reply, which says whether there
// is a device. The end of the socket ends the program, and with it all that it has registered and connected.
//
// While others read, "serve" sleeps in recvmsg: the device answers.
#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

// What a reader asks of the host. Tests build readers that try others.
#ifndef READER_OPCODE
#define READER_OPCODE IBV_WR_RDMA_READ
#endif
// What a connection of "serve" lets its reader do, and what its memory. Tests allow more in one of the two, to see that
// the other refuses.
#ifndef CONNECTION_ACCESS
#define CONNECTION_ACCESS IBV_ACCESS_REMOTE_READ
#endif
#ifndef MEMORY_ACCESS
#define MEMORY_ACCESS IBV_ACCESS_REMOTE_READ
#endif

enum {
	CONTROL = 3, // the descriptor of the socket
	PORT = 1,
	MAX_QUEUES = 64,
	SEND_DEPTH = 64,      // reads of one queue that are under way at a time
	MAX_OUTSTANDING = 16, // of which the host's device works on, as far as both devices can
	SPIN_NS = 50000,      // for which a reader polls before it sleeps
	// The device sends again after 4.096 us * 2^14 = 67 ms without an answer, seven times.
	TIMEOUT = 14,
	RETRIES = 7,
	RNR_TIMER = 12,
	PACKETS_HOPS = 64,
	MAX_PIECES = 1024,
};

enum command { REGISTER = 1, OPEN, CONNECT, CLOSE, READ, FORGET };

// endpoint is one end of a connection.
struct endpoint {
	uint8_t gid[16];
	uint32_t queue; // the number of the queue pair
	uint32_t sequence; // of the first packet that this end sends
	uint16_t lid;
	uint8_t mtu; // as enum ibv_mtu has it
	uint8_t unused[5];
};

struct piece {
	uint64_t address;
	uint32_t key;
	uint32_t length;
};

struct request {
	uint32_t command;
	uint32_t queue; // CONNECT, CLOSE, READ
	union {
		struct {
			uint64_t length; // bytes of the descriptor that comes with it
			uint64_t offset; // where they begin
		} memory; // REGISTER
		uint32_t key; // FORGET
		struct endpoint peer; // CONNECT
		struct {
			uint32_t timeout_ms;
			uint32_t count;
			struct piece pieces[MAX_PIECES];
		} read;
	};
};

struct reply {
	int32_t error; // 0, or one of errno.h
	uint32_t completion; // the status of a read that failed (enum ibv_wc_status), else 0
	char text[112]; // what failed, or the device's name
	struct endpoint own; // OPEN
	struct piece memory; // REGISTER
};

_Static_assert(sizeof(struct endpoint) == 32 && sizeof(struct piece) == 16, "as on the page");
_Static_assert(sizeof(struct reply) == 168 && offsetof(struct request, read.pieces) == 16, "as on the page");

struct queue {
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	struct ibv_comp_channel *channel; // of readers alone
	uint32_t sequence;
};

static bool serving;
static struct ibv_context *device;
static struct ibv_device_attr limits;
static struct ibv_port_attr port;
static struct ibv_pd *domain;
static int gid_index;
static union ibv_gid gid;
static struct queue queues[MAX_QUEUES];
static struct ibv_mr *buffer; // of readers: what is read comes here
static struct ibv_mr **served; // what is registered for others
static size_t served_count, served_room;

// fail fills a reply with what failed; error is one of errno.h.
__attribute__((format(printf, 3, 4))) static void fail(struct reply *r, int error, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(r->text, sizeof(r->text), format, arguments);
	va_end(arguments);
	r->error = error > 0 ? error : EIO;
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

// worth is how much an address of the device is wanted: RoCE version 2 passes routers, and the address of a link alone
// does not.
static int worth(const struct ibv_gid_entry *e)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

	if (e->gid_type != IBV_GID_TYPE_ROCE_V2)
		return 1;
	if (!memcmp(e->gid.raw, mapped, sizeof(mapped)))
		return 4;
	return e->gid.raw[0] == 0xfe && (e->gid.raw[1] & 0xc0) == 0x80 ? 2 : 3;
}

static bool choose_address(void)
{
	int best = 0;

	for (int i = 0; i < port.gid_tbl_len; i++) {
		struct ibv_gid_entry e;

		if (!ibv_query_gid_ex(device, PORT, i, &e, 0) && worth(&e) > best) {
			best = worth(&e);
			gid_index = i;
			gid = e.gid;
		}
	}
	return best > 0;
}

// usable opens a device whose port is active.
static bool usable(struct ibv_device *d)
{
	device = ibv_open_device(d);
	if (!device)
		return false;
	if (!ibv_query_device(device, &limits) && !ibv_query_port(device, PORT, &port) && port.state == IBV_PORT_ACTIVE &&
	    choose_address())
		return true;
	ibv_close_device(device);
	device = NULL;
	return false;
}

static void open_device(const char *name, struct reply *r)
{
	int count = 0;
	struct ibv_device **all = ibv_get_device_list(&count);

	if (!all) { // ENOSYS where the kernel has no RDMA
		fail(r, errno == ENOSYS ? ENODEV : errno, "looking for RDMA devices");
		return;
	}
	for (int i = 0; i < count && !device; i++)
		if (!*name || !strcmp(name, ibv_get_device_name(all[i])))
			usable(all[i]);
	ibv_free_device_list(all);
	if (!device) {
		fail(r, ENODEV, "no RDMA device %s with an active port and an address among %d", name, count);
		return;
	}
	domain = ibv_alloc_pd(device);
	if (!domain) {
		fail(r, errno, "making a protection domain");
		return;
	}
	snprintf(r->text, sizeof(r->text), "%s", ibv_get_device_name(device->device));
}

// register_memory maps a descriptor: to be read by others, or, for a reader, as its buffer.
static void register_memory(const struct request *q, int fd, struct reply *r)
{
	uint64_t length = q->memory.length;

	if (fd < 0 || !length || buffer) {
		fail(r, EINVAL, "registering %llu bytes of descriptor %d", (unsigned long long)length, fd);
		return;
	}
	static bool written; // memory has to be mapped for writing
	if (served_count == served_room) {
		size_t room = 2 * served_room + 64;
		struct ibv_mr **more = realloc(served, room * sizeof(*served));

		if (!more) {
			fail(r, ENOMEM, "registering more than %zu", served_count);
			return;
		}
		served = more;
		served_room = room;
	}
	int protection = serving && !written ? PROT_READ : PROT_READ | PROT_WRITE;
	struct ibv_mr *m = NULL;
	void *memory = MAP_FAILED;
	// Linux 6.1 pins pages as if they were to be written (ib_umem_get with FOLL_FORCE), which it refuses for a mapping
	// that is shared and can only be read. There it is mapped for writing until it is registered.
	for (;;) {
		memory = mmap(NULL, length, protection, MAP_SHARED, fd, (off_t)q->memory.offset);
		if (memory == MAP_FAILED) {
			fail(r, errno, "mapping %llu bytes", (unsigned long long)length);
			return;
		}
		m = ibv_reg_mr(domain, memory, length, serving ? MEMORY_ACCESS : IBV_ACCESS_LOCAL_WRITE);
		if (m || errno != EFAULT || protection & PROT_WRITE)
			break;
		munmap(memory, length);
		written = true;
		protection |= PROT_WRITE;
	}
	if (!m) {
		fail(r, errno, "registering %llu bytes: %s (is RLIMIT_MEMLOCK too low?)", (unsigned long long)length,
		     strerror(errno));
		munmap(memory, length);
		return;
	}
	if (!serving) {
		buffer = m;
		return;
	}
	mprotect(memory, length, PROT_READ);
	served[served_count++] = m;
	r->memory = (struct piece){(uintptr_t)memory, m->rkey, 0};
}

// forget lets nobody read any more what was registered with a key.
static void forget(uint32_t key, struct reply *r)
{
	for (size_t i = 0; i < served_count; i++) {
		struct ibv_mr *m = served[i];
		void *memory = m->addr;
		size_t length = m->length;

		if (m->rkey != key)
			continue;
		int error = ibv_dereg_mr(m);
		if (error) {
			fail(r, error, "forgetting memory: %s", strerror(error));
			return;
		}
		munmap(memory, length);
		served[i] = served[--served_count];
		return;
	}
	fail(r, ENOENT, "no memory with the key %u", key);
}

static struct queue *queue_of(uint32_t number)
{
	for (int i = 0; i < MAX_QUEUES; i++)
		if (queues[i].qp && queues[i].qp->qp_num == number)
			return &queues[i];
	return NULL;
}

static void close_queue(struct queue *q)
{
	if (q->qp)
		ibv_destroy_qp(q->qp);
	if (q->cq)
		ibv_destroy_cq(q->cq);
	if (q->channel)
		ibv_destroy_comp_channel(q->channel);
	*q = (struct queue){0};
}

// open_queue makes one end of a connection.
static void open_queue(struct reply *r)
{
	struct queue *q = NULL;

	for (int i = 0; i < MAX_QUEUES && !q; i++)
		if (!queues[i].qp)
			q = &queues[i];
	if (!q) {
		fail(r, EBUSY, "more than %d connections", MAX_QUEUES);
		return;
	}
	if (getrandom(&q->sequence, sizeof(q->sequence), 0) != sizeof(q->sequence)) {
		fail(r, errno, "asking for a random number");
		return;
	}
	q->sequence &= 0xffffff;
	if (!serving && !(q->channel = ibv_create_comp_channel(device)))
		goto failed;
	if (!(q->cq = ibv_create_cq(device, SEND_DEPTH + 1, NULL, q->channel, 0)))
		goto failed;
	struct ibv_qp_init_attr made = {.send_cq = q->cq, .recv_cq = q->cq, .qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = serving ? 1 : SEND_DEPTH, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
	if (!(q->qp = ibv_create_qp(domain, &made)))
		goto failed;
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = PORT, .qp_access_flags = serving ? CONNECTION_ACCESS : 0};
	errno = ibv_modify_qp(q->qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	if (errno)
		goto failed;
	memcpy(r->own.gid, gid.raw, sizeof(r->own.gid));
	r->own.queue = q->qp->qp_num;
	r->own.sequence = q->sequence;
	r->own.lid = port.lid;
	r->own.mtu = port.active_mtu;
	return;
failed:
	fail(r, errno, "making a queue pair: %s", strerror(errno));
	close_queue(q);
}

static int least(int a, int b)
{
	return a < b ? a : b;
}

// connect_queue ties it to the other end. The end that serves can answer then, and not ask.
static void connect_queue(struct queue *q, const struct endpoint *peer, struct reply *r)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR, .path_mtu = least(port.active_mtu, peer->mtu),
		.dest_qp_num = peer->queue, .rq_psn = peer->sequence, .min_rnr_timer = RNR_TIMER,
		.max_dest_rd_atomic = serving ? least(MAX_OUTSTANDING, limits.max_qp_rd_atom) : 0,
		.ah_attr = {.is_global = 1, .port_num = PORT, .dlid = peer->lid,
			.grh = {.sgid_index = gid_index, .hop_limit = PACKETS_HOPS}}};

	memcpy(a.ah_attr.grh.dgid.raw, peer->gid, sizeof(peer->gid));
	int error = ibv_modify_qp(q->qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	if (!error && !serving) {
		a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .sq_psn = q->sequence, .timeout = TIMEOUT, .retry_cnt = RETRIES,
			.rnr_retry = RETRIES, .max_rd_atomic = least(MAX_OUTSTANDING, limits.max_qp_init_rd_atom)};
		error = ibv_modify_qp(q->qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
	}
	if (error)
		fail(r, error, "connecting a queue pair: %s", strerror(error));
}

// completions waits for some, first by polling and then asleep; 0 after the deadline.
static int completions(struct queue *q, struct ibv_wc *all, int most, uint64_t deadline)
{
	uint64_t spin = now_ns() + SPIN_NS;
	bool armed = false;

	for (;;) {
		int n = ibv_poll_cq(q->cq, most, all);
		uint64_t now = now_ns();

		if (n != 0 || now >= deadline)
			return n;
		if (now < spin)
			continue;
		if (!armed) {
			if (ibv_req_notify_cq(q->cq, 0))
				return -1;
			armed = true; // what came before is polled once more
			continue;
		}
		struct pollfd ready = {.fd = q->channel->fd, .events = POLLIN};
		if (poll(&ready, 1, (deadline - now) / 1000000 + 1) > 0) {
			struct ibv_cq *of;
			void *context;

			if (ibv_get_cq_event(q->channel, &of, &context))
				return -1;
			ibv_ack_cq_events(of, 1);
			armed = false;
		}
	}
}

// read_pieces reads into the buffer, one piece after the other.
static void read_pieces(struct queue *q, const struct request *w, struct reply *r)
{
	uint64_t deadline = now_ns() + (uint64_t)w->read.timeout_ms * 1000000;
	uint64_t sum = 0, at = buffer ? (uintptr_t)buffer->addr : 0;
	uint32_t posted = 0, done = 0;

	for (uint32_t i = 0; i < w->read.count; i++)
		sum += w->read.pieces[i].length;
	if (serving || !buffer || sum > buffer->length) {
		fail(r, EINVAL, "reading %llu bytes into the buffer", (unsigned long long)sum);
		return;
	}
	while (done < w->read.count) {
		for (; posted < w->read.count && posted - done < SEND_DEPTH; posted++) {
			const struct piece *p = &w->read.pieces[posted];
			struct ibv_sge into = {.addr = at, .length = p->length, .lkey = buffer->lkey};
			struct ibv_send_wr one = {.sg_list = &into, .num_sge = 1, .opcode = READER_OPCODE,
				.send_flags = IBV_SEND_SIGNALED, .wr.rdma = {.remote_addr = p->address, .rkey = p->key}}, *bad;
			int error = ibv_post_send(q->qp, &one, &bad);

			if (error) {
				fail(r, error, "asking the device to read: %s", strerror(error));
				return;
			}
			at += p->length;
		}
		struct ibv_wc all[SEND_DEPTH];
		int n = completions(q, all, SEND_DEPTH, deadline);
		if (n < 0) {
			fail(r, EIO, "asking the device what it has read");
			return;
		}
		if (!n) {
			fail(r, ETIMEDOUT, "%u of %u pieces are read after %u ms", done, w->read.count, w->read.timeout_ms);
			return;
		}
		for (int i = 0; i < n; i++) {
			if (all[i].status != IBV_WC_SUCCESS) {
				r->completion = all[i].status;
				fail(r, EIO, "%s", ibv_wc_status_str(all[i].status));
				return;
			}
		}
		done += n;
	}
}

static void answer(const struct request *q, ssize_t length, int fd, struct reply *r)
{
	struct queue *of = NULL;
	size_t want = sizeof(q->command) + sizeof(q->queue);

	if (length >= (ssize_t)want) {
		if (q->command == REGISTER)
			want += sizeof(q->memory);
		if (q->command == FORGET)
			want += sizeof(q->key);
		if (q->command == CONNECT)
			want += sizeof(q->peer);
		if (q->command == READ && length >= (ssize_t)offsetof(struct request, read.pieces))
			want = q->read.count <= MAX_PIECES ? offsetof(struct request, read.pieces[q->read.count]) : 0;
	}
	if (length != (ssize_t)want) {
		fail(r, EINVAL, "a message of %zd bytes", length);
		return;
	}
	if (q->command >= CONNECT && q->command <= READ && !(of = queue_of(q->queue))) {
		fail(r, ENOENT, "no connection %u", q->queue);
		return;
	}
	switch (q->command) {
	case REGISTER:
		register_memory(q, fd, r);
		break;
	case OPEN:
		open_queue(r);
		break;
	case CONNECT:
		connect_queue(of, &q->peer, r);
		break;
	case CLOSE:
		close_queue(of);
		break;
	case READ:
		read_pieces(of, q, r);
		break;
	case FORGET:
		forget(q->key, r);
		break;
	default:
		fail(r, EINVAL, "command %u", q->command);
	}
}

int main(int argc, char **argv)
{
	static struct request q;
	struct reply r = {0};

	if (argc < 2 || argc > 3 || (strcmp(argv[1], "serve") && strcmp(argv[1], "read"))) {
		fprintf(stderr, "usage: outsight-rdma serve|read [DEVICE], with a socket as descriptor %d: it is started by "
			"outsight\n", CONTROL);
		return 2;
	}
	serving = !strcmp(argv[1], "serve");
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0); // other processes of nobody do not look into this one
	open_device(argc == 3 ? argv[2] : "", &r);
	while (send(CONTROL, &r, sizeof(r), MSG_NOSIGNAL) == sizeof(r)) {
		union {
			struct cmsghdr header;
			char space[CMSG_SPACE(sizeof(int))];
		} rights;
		struct iovec into = {&q, sizeof(q)};
		struct msghdr m = {.msg_iov = &into, .msg_iovlen = 1, .msg_control = &rights, .msg_controllen = sizeof(rights)};
		ssize_t length;
		int fd = -1;

		while ((length = recvmsg(CONTROL, &m, MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR)
			;
		if (length <= 0 || !device)
			break;
		struct cmsghdr *c = CMSG_FIRSTHDR(&m);
		if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(sizeof(int)))
			memcpy(&fd, CMSG_DATA(c), sizeof(fd));
		r = (struct reply){0};
		answer(&q, m.msg_flags & MSG_TRUNC ? -1 : length, fd, &r);
		if (fd >= 0)
			close(fd);
	}
	return 0;
}
