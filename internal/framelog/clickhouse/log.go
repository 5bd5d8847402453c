package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"outsight/internal/frame"
	"outsight/internal/framelog"
)

// Options of a Log. The zero value has the defaults.
type Options struct {
	// Fine, Middle and Keep are how long all frames, the first in each Every and key frames are kept: 1 hour, 1 day and
	// 30 days.
	Fine, Middle, Keep time.Duration
	// Every is 10 seconds.
	Every time.Duration
	// KeyWait is for how long a frame waits for its key frame, which another server may be about to store: 5 seconds.
	KeyWait time.Duration
	// Password is used where the address has none.
	Password string
	// Log may be nil.
	Log *slog.Logger
}

func (o *Options) setDefaults() {
	for _, one := range []struct {
		of      *time.Duration
		unless0 time.Duration
	}{{&o.Fine, time.Hour}, {&o.Middle, 24 * time.Hour}, {&o.Keep, 30 * 24 * time.Hour}, {&o.Every, 10 * time.Second},
		{&o.KeyWait, 5 * time.Second}} {
		if *one.of == 0 {
			*one.of = one.unless0
		}
	}
	o.Middle = max(o.Middle, o.Fine)
	o.Keep = max(o.Keep, o.Middle)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
}

// Log keeps frames in ClickHouse. It implements framelog.Log.
type Log struct {
	client   *client
	database string
	options  Options
	version  version

	// mu guards what follows.
	mu    sync.Mutex
	hosts map[hostKey]*hostState
	stats framelog.Stats
	// statsTime is when stats were asked for last.
	statsTime time.Time

	stop chan struct{}
	done chan struct{}
}

var _ framelog.Log = (*Log)(nil)

// Open makes the database and its tables, where they are not there, and adds the columns that are new. The address is
// clickhouse://user:password@host:port/database, with clickhouses for HTTPS.
func Open(address string, o Options) (*Log, error) {
	o.setDefaults()
	c, database, err := newClient(address)
	if err != nil {
		return nil, err
	}
	if c.password == "" {
		c.password = o.Password
	}
	l := &Log{client: c, database: database, options: o, hosts: map[hostKey]*hostState{}, stop: make(chan struct{}),
		done: make(chan struct{})}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := l.prepare(ctx); err != nil {
		return nil, err
	}
	go l.expire()
	return l, nil
}

func (l *Log) prepare(ctx context.Context) error {
	rows, err := l.client.texts(ctx, 1, "SELECT version()")
	if err != nil {
		return err
	}
	if l.version, err = parseVersion(rows); err != nil {
		return err
	}
	if !l.version.atLeast(leastTested) {
		return fmt.Errorf("this is ClickHouse %s, want at least %s", rows[0][0], leastTested)
	}
	if l.version.atLeast(hasAsync) {
		// Append returns when rows are stored.
		l.client.settings.Set("async_insert", "0")
	}
	if err := l.client.run(ctx, "CREATE DATABASE IF NOT EXISTS "+quoted(l.database), nil); err != nil {
		return err
	}
	for t := range frame.NumTables {
		if err := l.prepareTable(ctx, frame.Schema[t].Name, columnsOf(t), "tenant, host, epoch, frame, row"); err != nil {
			return err
		}
	}
	return l.prepareTable(ctx, framesTable, headerColumns, "tenant, host, epoch, frame")
}

func parseVersion(rows [][]string) (v version, err error) {
	if len(rows) == 1 {
		parts := strings.SplitN(rows[0][0], ".", 3)
		if len(parts) == 3 {
			year, err1 := strconv.Atoi(parts[0])
			release, err2 := strconv.Atoi(parts[1])
			if err := errors.Join(err1, err2); err == nil {
				return version{year, release}, nil
			}
		}
	}
	return v, fmt.Errorf("ClickHouse tells its version as %q", rows)
}

// codeColumnExists is ClickHouse's error of a column that another server has added meanwhile.
const codeColumnExists = 44

func (l *Log) prepareTable(ctx context.Context, name string, columns []column, order string) error {
	if err := l.client.run(ctx, l.create(name, columns, order), nil); err != nil {
		return fmt.Errorf("creating the table %s: %w", name, err)
	}
	rows, err := l.client.texts(ctx, 1, fmt.Sprintf("SELECT name FROM system.columns WHERE database = %s AND table = %s",
		literal(l.database), literal(name)))
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, row := range rows {
		there[row[0]] = true
	}
	for i := range columns {
		if c := &columns[i]; !there[c.name] {
			err := l.client.run(ctx, fmt.Sprintf("ALTER TABLE %s ADD COLUMN %s %s", l.table(name), quoted(c.name),
				c.typeIn(l.version)), nil)
			var of *Error
			if err != nil && !(errors.As(err, &of) && of.Code == codeColumnExists) {
				return fmt.Errorf("adding the column %s to %s: %w", c.name, name, err)
			}
		}
	}
	return l.setTTL(ctx, name)
}

// Close stops the removal of what has expired.
func (l *Log) Close() error {
	close(l.stop)
	<-l.done
	l.client.http.CloseIdleConnections()
	return nil
}

// Hosts are all hosts of a tenant.
func (l *Log) Hosts(ctx context.Context, tenant string) ([]framelog.Host, error) {
	body, err := l.client.do(ctx, fmt.Sprintf("SELECT host, min(time_ns), max(time_ns) FROM %s WHERE tenant = %s "+
		"GROUP BY host ORDER BY host FORMAT RowBinary", l.table(framesTable), literal(tenant)), nil)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	var all []framelog.Host
	r := newReader(body)
	for r.more() {
		all = append(all, framelog.Host{Name: r.text(), First: time.Unix(0, int64(r.uint64())),
			Last: time.Unix(0, int64(r.uint64()))})
	}
	return all, r.err
}

// statsAge is how old Stats may be.
const statsAge = 10 * time.Second

// Stats are those of all tenants. Bytes are those of the parts that ClickHouse has, compressed.
func (l *Log) Stats() framelog.Stats {
	l.mu.Lock()
	stats, age := l.stats, time.Since(l.statsTime)
	l.mu.Unlock()
	if age < statsAge {
		return stats
	}
	ctx, cancel := context.WithTimeout(context.Background(), statsAge)
	defer cancel()
	if err := l.readStats(ctx, &stats); err != nil {
		l.options.Log.Warn("reading the size of the frame log", "error", err)
		return stats
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	stats.Damaged, stats.KeyMissing, stats.Duplicates = l.stats.Damaged, l.stats.KeyMissing, l.stats.Duplicates
	l.stats, l.statsTime = stats, time.Now()
	return stats
}

func (l *Log) readStats(ctx context.Context, stats *framelog.Stats) error {
	body, err := l.client.do(ctx, fmt.Sprintf("SELECT toUInt64(min(time_ns)), toUInt64(max(time_ns)), "+
		"toUInt64(uniqExact(tenant, host)), toUInt64(uniqExact(tenant, host, epoch, frame)) FROM %s FORMAT RowBinary",
		l.table(framesTable)), nil)
	if err != nil {
		return err
	}
	defer body.Close()
	r := newReader(body)
	oldest, newest := r.uint64(), r.uint64()
	stats.Hosts, stats.Frames = int(r.uint64()), int(r.uint64())
	if r.err != nil {
		return r.err
	}
	if stats.Frames > 0 {
		stats.Oldest, stats.Newest = time.Unix(0, int64(oldest)), time.Unix(0, int64(newest))
	}
	sizes, err := l.Sizes(ctx)
	stats.Bytes = 0
	for _, size := range sizes {
		stats.Bytes += size
	}
	return err
}

// Sizes are the bytes that each table takes on the disk.
func (l *Log) Sizes(ctx context.Context) (map[string]int64, error) {
	body, err := l.client.do(ctx, fmt.Sprintf("SELECT table, toUInt64(sum(bytes_on_disk)) FROM system.parts WHERE active AND "+
		"database = %s GROUP BY table FORMAT RowBinary", literal(l.database)), nil)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	sizes := map[string]int64{}
	r := newReader(body)
	for r.more() {
		table := r.text()
		sizes[table] = int64(r.uint64())
	}
	return sizes, r.err
}
