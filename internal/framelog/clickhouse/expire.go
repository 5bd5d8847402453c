package clickhouse

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"outsight/internal/frame"
)

// expireInterval is how often it is looked for what has expired.
const expireInterval = 10 * time.Minute

// setTTL makes a table's retention that of the options, which may have changed since it was made.
func (l *Log) setTTL(ctx context.Context, name string) error {
	if !l.version.atLeast(hasTTL) {
		return nil
	}
	rows, err := l.client.texts(ctx, 1, fmt.Sprintf("SELECT engine_full FROM system.tables WHERE database = %s AND name = %s",
		literal(l.database), literal(name)))
	if err != nil || len(rows) == 1 && strings.Contains(rows[0][0], "TTL "+l.ttl()) {
		return err
	}
	if err := l.client.run(ctx, "ALTER TABLE "+l.table(name)+" MODIFY TTL "+l.ttl(), nil); err != nil {
		return fmt.Errorf("setting the retention of %s: %w", name, err)
	}
	return nil
}

// expire removes what has expired, until the log is closed. ClickHouse does so itself where it has a TTL.
func (l *Log) expire() {
	defer close(l.done)
	if l.version.atLeast(hasTTL) {
		<-l.stop
		return
	}
	ticker := time.NewTicker(expireInterval)
	defer ticker.Stop()
	for {
		ctx, cancel := context.WithTimeout(context.Background(), expireInterval)
		if err := l.RemoveExpired(ctx, time.Now()); err != nil {
			l.options.Log.Warn("removing expired frames", "error", err)
		}
		cancel()
		select {
		case <-l.stop:
			return
		case <-ticker.C:
		}
	}
}

// RemoveExpired drops the partitions all of whose rows have expired, as the log does by itself where ClickHouse has no
// TTL. Several servers may do so at once.
func (l *Log) RemoveExpired(ctx context.Context, now time.Time) error {
	rows, err := l.client.texts(ctx, 2, fmt.Sprintf("SELECT table, partition FROM system.parts "+
		"WHERE active AND database = %s GROUP BY table, partition", literal(l.database)))
	if err != nil {
		return err
	}
	ours := map[string]bool{framesTable: true}
	for t := range frame.NumTables {
		ours[frame.Schema[t].Name] = true
	}
	for _, row := range rows {
		class, begin, ok := parsePartition(row[1])
		if !ours[row[0]] || !ok || !begin.Add(l.lifeOf(class)).Before(now) {
			continue
		}
		if err := l.client.run(ctx, "ALTER TABLE "+l.table(row[0])+" DROP PARTITION "+row[1], nil); err != nil {
			return err
		}
	}
	return nil
}

// keepLast makes the last frame of the epoch before one be kept as long as key frames: it has what was counted since
// the last of those.
func (l *Log) keepLast(ctx context.Context, of hostKey) error {
	host := fmt.Sprintf("tenant = %s AND host = %s", literal(of.tenant), literal(of.host))
	body, err := l.client.do(ctx, fmt.Sprintf("SELECT epoch, max(frame), min(class) FROM %s WHERE %s AND (epoch, frame) IN ("+
		"SELECT epoch, max(frame) FROM %[1]s WHERE %[2]s AND epoch < %d GROUP BY epoch ORDER BY epoch DESC LIMIT 1) "+
		"GROUP BY epoch FORMAT RowBinary", l.table(framesTable), host, of.epoch), nil)
	if err != nil {
		return err
	}
	defer body.Close()
	r := newReader(body)
	if !r.more() {
		return r.err
	}
	epoch, number, class := r.uint64(), r.uint64(), r.uint8()
	if r.err != nil || class == classKey {
		return r.err
	}
	where := fmt.Sprintf("%s AND epoch = %d AND frame = %d", host, epoch, number)
	for t := range frame.NumTables {
		if err := l.copyAsKey(ctx, frame.Schema[t].Name, columnsOf(t), where); err != nil {
			return err
		}
	}
	return l.copyAsKey(ctx, framesTable, headerColumns, where)
}

// copyAsKey stores rows again, to be kept as long as those of key frames.
func (l *Log) copyAsKey(ctx context.Context, table string, columns []column, where string) error {
	var names, values []string
	for i := range columns {
		names, values = append(names, quoted(columns[i].name)), append(values, quoted(columns[i].name))
		if columns[i].name == "class" {
			values[i] = fmt.Sprintf("toUInt8(%d)", classKey)
		}
	}
	err := l.client.run(ctx, fmt.Sprintf("INSERT INTO %s (%s) SELECT %s FROM %[1]s WHERE %[4]s", l.table(table),
		strings.Join(names, ", "), strings.Join(values, ", "), where), nil)
	if err != nil {
		return fmt.Errorf("keeping the last rows of %s: %w", table, err)
	}
	return nil
}

// lifeOf is how long a partition is kept from its beginning on: until its last row has expired.
func (l *Log) lifeOf(class int) time.Duration {
	switch class {
	case classFine:
		return time.Hour + l.options.Fine
	case classMiddle:
		return 24*time.Hour + l.options.Middle
	}
	return 24*time.Hour + l.options.Keep
}

// parsePartition reads the name of a partition: (2,'2026-11-24 18:00:00').
func parsePartition(name string) (class int, begin time.Time, ok bool) {
	first, second, ok := strings.Cut(strings.Trim(name, "()"), ",")
	class, err := strconv.Atoi(first)
	if err != nil || !ok {
		return 0, begin, false
	}
	begin, err = time.Parse("'"+time.DateTime+"'", second)
	return class, begin, err == nil
}
