//go:build ignore

// SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only)
/*
 * At the functions of TLS libraries that take and give plaintext. Which socket it belongs to, the
 * library does not say here: the data of a socket is sent within a call that writes, on the same
 * thread (or by the same goroutine), and there it is looked up. Optional, and off by default.
 */
#include "include/kernel.h"
#include "include/lru.h"
#include "include/architecture.h"
#include "net/tls.h"

char LICENSE[] SEC("license") = "GPL";

struct pt_regs___tls_x86_64 {
	unsigned long r14;
	unsigned long bx;
	unsigned long cx;
	unsigned long ax;
	unsigned long dx;
	unsigned long si;
	unsigned long di;
} __attribute__((preserve_access_index));

struct pt_regs___tls_arm64 {
	u64 regs[31];
} __attribute__((preserve_access_index));

/* Argument of a C function, or its result (-1). */
static __always_inline u64 c_argument(void *ctx, const int which)
{
	if (architecture == ARCHITECTURE_AMD64) {
		struct pt_regs___tls_x86_64 *regs = ctx;
		u64 value = which == 0 ? regs->di : which == 1 ? regs->si : which == 2 ? regs->dx :
			    which == 3 ? regs->cx : regs->ax;

		/*
		 * Else the loads of both architectures become one, from a place that the verifier
		 * refuses.
		 */
		barrier_var(value);
		return value;
	}
	struct pt_regs___tls_arm64 *regs = ctx;

	return regs->regs[which < 0 ? 0 : which];
}

static __always_inline void this_thread(struct tls_call_key *key, u32 kind)
{
	u64 id = bpf_get_current_pid_tgid();

	key->who = (u32)id;
	key->group = id >> 32;
	key->kind = kind;
}

static __always_inline void begin_write(const struct tls_call_key *who, u64 connection, u64 text,
					u64 size, u64 result)
{
	struct tls_call call = {
		.connection = connection, .text = text, .size = size, .result = result};
	struct tls_connection_key key = {.connection = connection, .group = who->group};
	struct tls_connection *known = bpf_map_lookup_elem(&tls_connections, &key);

	if (known)
		known->written = 1;
	lru_put(&tls_calls, LRU_TLS_CALLS, who, &call);
}

static __always_inline void begin_read(const struct tls_call_key *who, u64 connection, u64 text,
				       u64 result)
{
	struct tls_call call = {.connection = connection, .text = text, .result = result};

	lru_put(&tls_calls, LRU_TLS_CALLS, who, &call);
}

static const struct tls_connection new_connection;

/*
 * A read has returned so many bytes. Those after a write begin a message, the others go on with it:
 * up to HEAD_BYTES are kept.
 */
static __noinline int end_read(struct tls_call_key *who, u64 size)
{
	if (!who)
		return 0;
	struct tls_call *found = bpf_map_lookup_elem(&tls_calls, who);
	if (!found)
		return 0;
	struct tls_call call = *found;
	/* A library may be watched twice, under two names: the second time there is no call. */
	if (!lru_take(&tls_calls, LRU_TLS_CALLS, who))
		return 0;
	if (call.result) {
		u64 written = 0;

		if (size != 1 ||
		    bpf_probe_read_user(&written, sizeof(written), (void *)call.result))
			return 0;
		size = written;
	}
	if (!size || size > 1 << 30)
		return 0;
	struct tls_connection_key key = {.connection = call.connection, .group = who->group};
	struct tls_connection *c = bpf_map_lookup_elem(&tls_connections, &key);
	if (!c) {
		lru_make(&tls_connections, LRU_TLS_CONNECTIONS, &key, &new_connection);
		c = bpf_map_lookup_elem(&tls_connections, &key);
		if (!c)
			return 0;
	}
	if (c->written || !c->length) {
		u32 n = at_most(size, HEAD_BYTES);

		c->written = 0;
		c->length = bpf_probe_read_user(c->bytes, n, (void *)call.text) ? 0 : n;
		c->size = size;
		c->read_ns = bpf_ktime_get_ns();
		return 0;
	}
	c->size += size;
	u32 at = c->length;
	if (at < HEAD_BYTES / 2) {
		u32 n = at_most(size, HEAD_BYTES / 2);

		if (!bpf_probe_read_user(c->bytes + at_most(at, HEAD_BYTES / 2), n,
					 (void *)call.text))
			c->length = at + n;
	}
	return 0;
}

/* --- OpenSSL --- */

/* int SSL_write(SSL *, const void *text, int size) */
SEC("uprobe")
int ssl_write(void *ctx)
{
	struct tls_call_key who = {};

	this_thread(&who, TLS_WRITES);
	begin_write(&who, c_argument(ctx, 0), c_argument(ctx, 1), (u32)c_argument(ctx, 2), 0);
	return 0;
}

/* int SSL_write_ex(SSL *, const void *text, size_t size, size_t *written) */
SEC("uprobe")
int ssl_write_ex(void *ctx)
{
	struct tls_call_key who = {};

	this_thread(&who, TLS_WRITES);
	begin_write(&who, c_argument(ctx, 0), c_argument(ctx, 1), c_argument(ctx, 2), 0);
	return 0;
}

SEC("uretprobe")
int ssl_write_end(void *ctx)
{
	struct tls_call_key who = {};

	this_thread(&who, TLS_WRITES);
	lru_take(&tls_calls, LRU_TLS_CALLS, &who);
	return 0;
}

/* int SSL_read(SSL *, void *text, int room) */
SEC("uprobe")
int ssl_read(void *ctx)
{
	struct tls_call_key who = {};

	this_thread(&who, TLS_READS);
	begin_read(&who, c_argument(ctx, 0), c_argument(ctx, 1), 0);
	return 0;
}

/* int SSL_read_ex(SSL *, void *text, size_t room, size_t *size) */
SEC("uprobe")
int ssl_read_ex(void *ctx)
{
	struct tls_call_key who = {};

	this_thread(&who, TLS_READS);
	begin_read(&who, c_argument(ctx, 0), c_argument(ctx, 1), c_argument(ctx, 3));
	return 0;
}

SEC("uretprobe")
int ssl_read_end(void *ctx)
{
	struct tls_call_key who = {};
	s32 result = c_argument(ctx, -1);

	this_thread(&who, TLS_READS);
	end_read(&who, result > 0 ? result : 0);
	return 0;
}

/* --- Go, in the registers of its internal calling convention on x86-64 --- */

/* R14 is the goroutine. */
static __always_inline void this_goroutine(struct tls_call_key *key, u32 kind, void *ctx)
{
	struct pt_regs___tls_x86_64 *regs = ctx;

	key->who = regs->r14;
	key->group = bpf_get_current_pid_tgid() >> 32;
	key->kind = kind;
}

/*
 * Whether text lies on the goroutine's stack, whose bounds are the first two words of a goroutine:
 * a stack may be moved within the call.
 */
static __always_inline bool on_stack(u64 goroutine, u64 text)
{
	u64 bounds[2];

	if (bpf_probe_read_user(bounds, sizeof(bounds), (void *)goroutine))
		return true;
	return text >= bounds[0] && text < bounds[1];
}

/* func (c *Conn) Write(b []byte) (int, error) */
SEC("uprobe")
int go_write(void *ctx)
{
	struct pt_regs___tls_x86_64 *regs = ctx;
	struct tls_call_key who = {};

	if (architecture != ARCHITECTURE_AMD64)
		return 0;
	this_goroutine(&who, TLS_GO_WRITES, ctx);
	u64 size = regs->cx;
	begin_write(&who, regs->ax, regs->bx, on_stack(who.who, regs->bx) ? 0 : size, 0);
	return 0;
}

SEC("uprobe")
int go_write_end(void *ctx)
{
	struct tls_call_key who = {};

	if (architecture != ARCHITECTURE_AMD64)
		return 0;
	this_goroutine(&who, TLS_GO_WRITES, ctx);
	lru_take(&tls_calls, LRU_TLS_CALLS, &who);
	return 0;
}

/* func (c *Conn) Read(b []byte) (int, error) */
SEC("uprobe")
int go_read(void *ctx)
{
	struct pt_regs___tls_x86_64 *regs = ctx;
	struct tls_call_key who = {};

	if (architecture != ARCHITECTURE_AMD64)
		return 0;
	this_goroutine(&who, TLS_GO_READS, ctx);
	if (!on_stack(who.who, regs->bx))
		begin_read(&who, regs->ax, regs->bx, 0);
	return 0;
}

SEC("uprobe")
int go_read_end(void *ctx)
{
	struct pt_regs___tls_x86_64 *regs = ctx;
	struct tls_call_key who = {};

	if (architecture != ARCHITECTURE_AMD64)
		return 0;
	s64 size = regs->ax;
	this_goroutine(&who, TLS_GO_READS, ctx);
	end_read(&who, size > 0 ? size : 0);
	return 0;
}
