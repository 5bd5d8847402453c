package net

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"

	"outsight/internal/model"
)

// Transaction is one entry of an edge's latency histogram, by itself. Times are nanoseconds of
// the monotonic clock.
type Transaction struct {
	Edge model.KernelEdgeKey
	// FirstNS is the first byte of the request, ReplyNS the first and LastNS the last of the reply.
	FirstNS, ReplyNS, LastNS uint64
}

// Latency is the duration that the kernel counted.
func (t Transaction) Latency() time.Duration {
	if t.LastNS < t.FirstNS {
		return 0
	}
	return time.Duration(t.LastNS - t.FirstNS)
}

// transactionLog reads what transactions.h writes.
type transactionLog struct {
	ring     *ringbuf.Reader
	record   ringbuf.Record
	unlogged *ebpf.Variable
}

// loggedBytes is what one transaction takes in the ring: the kernel puts a header before each.
const loggedBytes = int(unsafe.Sizeof(edgesTransaction{})) + 8

// ringBytes is the size of a ring with room for n transactions: a power of two, and a page.
func ringBytes(n int) int {
	size := os.Getpagesize()
	for size < n*loggedBytes {
		size *= 2
	}
	return size
}

// prepareLog switches the log on in the programs that will be loaded from spec.
func (p *Net) prepareLog(spec *edgesSpecs) error {
	if p.options.LogTransactions <= 0 {
		return nil
	}
	spec.TransactionLog.MaxEntries = uint32(ringBytes(p.options.LogTransactions))
	return spec.LogTransactions.Set(true)
}

func (p *Net) openLog(objects *edgeObjects) error {
	if p.options.LogTransactions <= 0 {
		return nil
	}
	ring, err := ringbuf.NewReader(objects.TransactionLog)
	if err != nil {
		return fmt.Errorf("opening the log of transactions: %w", err)
	}
	p.OnClose(ring)
	p.log = &transactionLog{ring: ring, unlogged: objects.UnloggedTransactions}
	return nil
}

// Transactions hands out what was counted since the last call. It is for tests and benchmarks,
// and needs Options.LogTransactions; Drops has how many transactions found no room. It fails
// where the log is off. An edge that was given up meanwhile leaves its transactions another key.
func (p *Net) Transactions() ([]Transaction, error) {
	if p.log == nil {
		return nil, errors.New("reading the log of transactions: it is off (Options.LogTransactions)")
	}
	var all []Transaction
	keys := map[uint32]model.KernelEdgeKey{}
	for {
		p.log.ring.SetDeadline(time.Unix(0, 1)) // long ago: what is there, without waiting
		err := p.log.ring.ReadInto(&p.log.record)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return all, nil
		}
		if err != nil {
			return all, fmt.Errorf("reading the log of transactions: %w", err)
		}
		var t edgesTransaction
		if _, err := binary.Decode(p.log.record.RawSample, binary.NativeEndian, &t); err != nil {
			return all, fmt.Errorf("BUG: decoding a transaction: %w", err)
		}
		key, known := keys[t.Edge]
		if !known && int(t.Edge) < len(p.edges.edges.Entries) {
			key = keyOf(&p.edges.edges.Entries[t.Edge].Key)
			key.Overflow = int(t.Edge) == edgeOverflow
			keys[t.Edge] = key
		}
		all = append(all, Transaction{Edge: key, FirstNS: t.FirstNs, ReplyNS: t.ReplyNs, LastNS: t.LastNs})
	}
}

func (l *transactionLog) drop() model.Drop {
	d := model.Drop{Name: "transaction_log", Capacity: uint64(l.ring.BufferSize() / loggedBytes)}
	// A plain variable of the program: it is there as long as the log is.
	_ = l.unlogged.Get(&d.Count)
	return d
}
