package parquet

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"time"

	"outsight/internal/frame"
	"outsight/internal/framelog"
)

// Source is a log whose key frames can be read one after the other. *framelog.Files is one.
type Source interface {
	Hosts(ctx context.Context, tenant string) ([]framelog.Host, error)
	KeyFrames(ctx context.Context, tenant, host string, from, to time.Time) iter.Seq2[*frame.Frame, error]
}

// ErrNoSource is the error of a log that is no Source: ClickHouse is asked in SQL itself.
var ErrNoSource = errors.New("only a log in files becomes Parquet files")

// FollowOptions say what Follow writes. Zero values are the defaults.
type FollowOptions struct {
	Tenant string
	// Every is how often it looks for hours that are over, by default each minute.
	Every time.Duration
	// Wait is how long after the end of an hour it waits for a host that has sent no later frame, by default an hour:
	// an agent without a connection sends its frames when it has one again.
	Wait   time.Duration
	Now    func() time.Time
	Logger *slog.Logger
}

// Follow writes the hours of a log that are over, host by host, until ctx ends: it is what a server runs for its flag
// --parquet DIR, in a goroutine of its own that ends before the log is closed. Hours whose files are there are not
// written again; frames of such an hour that come later are in the log alone. Nothing is removed. It answers ErrNoSource
// at once for a log that is in ClickHouse; what fails later is logged, and tried again.
func Follow(ctx context.Context, log framelog.Log, dir string, o FollowOptions) error {
	from, ok := log.(Source)
	if !ok {
		return ErrNoSource
	}
	f := newFollower(from, dir, o)
	tick := time.NewTicker(f.o.Every)
	defer tick.Stop()
	for {
		if err := f.once(ctx); err != nil && ctx.Err() == nil {
			f.o.Logger.Error("writing Parquet files failed", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

type follower struct {
	from Source
	dir  string
	o    FollowOptions
	// next is the first hour of a host that may not be written yet.
	next map[string]time.Time
}

func newFollower(from Source, dir string, o FollowOptions) *follower {
	if o.Every == 0 {
		o.Every = time.Minute
	}
	if o.Wait == 0 {
		o.Wait = time.Hour
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &follower{from, dir, o, map[string]time.Time{}}
}

// once writes all hours that are over.
func (f *follower) once(ctx context.Context) error {
	hosts, err := f.from.Hosts(ctx, f.o.Tenant)
	if err != nil {
		return err
	}
	now := f.o.Now()
	var errs []error
	for _, h := range hosts {
		hour, known := f.next[h.Name]
		if !known {
			hour = h.First.Truncate(time.Hour)
		}
		for ; !hour.After(h.Last) && ctx.Err() == nil; hour = hour.Add(time.Hour) {
			end := hour.Add(time.Hour)
			if end.After(now) || h.Last.Before(end) && now.Sub(end) < f.o.Wait {
				break
			}
			if _, err := os.Stat(Path(f.dir, frame.Hosts, h.Name, hour)); err == nil {
				continue
			}
			if _, err := Write(f.dir, h.Name, hour, f.from.KeyFrames(ctx, f.o.Tenant, h.Name, hour, end)); err != nil {
				errs = append(errs, err)
				break
			}
		}
		f.next[h.Name] = hour
	}
	return errors.Join(errs...)
}

// Export writes what a log has of a tenant between two moments. done is called after each hour of a host, with how many
// of how many hours are done. It answers how many frames were written.
func Export(ctx context.Context, from Source, tenant, dir string, begin, end time.Time,
	done func(hour, hours int)) (frames int, err error) {
	hosts, err := from.Hosts(ctx, tenant)
	if err != nil {
		return 0, err
	}
	each := func(do func(host string, from, to time.Time) error) error {
		for _, h := range hosts {
			at, last := later(begin, h.First), h.Last.Add(1)
			if !end.IsZero() && end.Before(last) {
				last = end
			}
			for at.Before(last) {
				next := at.Truncate(time.Hour).Add(time.Hour)
				if next.After(last) {
					next = last
				}
				if err := do(h.Name, at, next); err != nil {
					return err
				}
				at = next
			}
		}
		return nil
	}
	hour, hours := 0, 0
	each(func(string, time.Time, time.Time) error { hours++; return nil })
	err = each(func(host string, first, to time.Time) error {
		n, err := Write(dir, host, first.Truncate(time.Hour), from.KeyFrames(ctx, tenant, host, first, to))
		if err != nil {
			return fmt.Errorf("host %s: %w", host, err)
		}
		frames, hour = frames+n, hour+1
		done(hour, hours)
		return nil
	})
	return frames, err
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
