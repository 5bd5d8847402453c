package framelog

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"outsight/internal/frame"
)

// KeyFrames answers the key frames of a host that are not before from and before to: in order of their epochs, and in
// each of their numbers. It holds one at a time. What cannot be read is left out.
func (f *Files) KeyFrames(ctx context.Context, tenant, host string, from, to time.Time) iter.Seq2[*frame.Frame, error] {
	return func(yield func(*frame.Frame, error) bool) {
		v, err := f.view()
		if err != nil {
			yield(nil, err)
			return
		}
		defer v.done()
		for _, h := range f.query(v, tenant, []string{host}, nil).hosts {
			for _, s := range h.streams {
				if !f.streamKeys(ctx, v, s, from.UnixNano(), to.UnixNano(), yield) {
					return
				}
			}
		}
	}
}

// streamKeys yields the key frames of an epoch. It answers whether to go on.
func (f *Files) streamKeys(ctx context.Context, v *view, s *stream, from, to int64,
	yield func(*frame.Frame, error) bool) bool {
	for minute := minuteOf(from); ; minute++ {
		f.mu.RLock()
		next, ok := s.minutes.after(minute)
		f.mu.RUnlock()
		if !ok || next > minuteOf(to-1) {
			return true
		}
		minute = next
		all, err := f.tryEntries(v, s, minute)
		if err = errors.Join(err, ctx.Err()); err != nil {
			yield(nil, err)
			return false
		}
		all = slices.DeleteFunc(all, func(l located) bool { return l.behind > 0 || l.time < from || l.time >= to })
		for _, l := range all {
			one, err := f.keyFrame(l)
			if err == nil && one == nil {
				continue
			}
			if !yield(one, err) || err != nil {
				return false
			}
		}
	}
}

// keyFrame reads a key frame; nil for one that is damaged.
func (f *Files) keyFrame(l located) (one *frame.Frame, err error) {
	readAll([]located{l}, func(_ located, data []byte, failed error) {
		if err = failed; err == nil {
			one, err = frame.Decode(data, nil)
		}
	})
	if err != nil && !errors.Is(err, ErrUnavailable) {
		f.damage(l.in, l.offset, err)
		return nil, nil
	}
	return one, err
}
