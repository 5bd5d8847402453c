package pull

import (
	"context"
	"errors"
	"fmt"
	"time"

	"outsight/internal/region"
	"outsight/internal/region/readwire"
	"outsight/internal/region/tcp"
)

// kernelReader reads the kernel's tables by packets, and files with applications' own metrics, which no kernel program can
// read, from the agent at the same port of TCP. Where the agent does not answer, the others are read all the same.
type kernelReader struct {
	packets readwire.Reader
	address string
	key     region.Key
	// files is nil where there is no connection; after one that failed there is none before tryAt.
	files *tcp.Client
	tryAt time.Time
	why   error
}

// askEvery is for how long an agent is not asked that did not answer.
const askEvery = 5 * time.Second

// Read implements region.Reader.
func (r *kernelReader) Read(ctx context.Context, id uint32, offset uint64, into []byte) error {
	return r.ReadAll(ctx, []region.Read{{Region: id, Offset: offset, Into: into}})
}

// ReadAll implements region.Reader.
func (r *kernelReader) ReadAll(ctx context.Context, reads []region.Read) error {
	if !hasFiles(reads) {
		return r.packets.ReadAll(ctx, reads)
	}
	for stage := range region.Stages(reads) {
		var files, others []region.Read
		for _, one := range stage {
			if one.Region >= region.FirstFileID {
				files = append(files, one)
			} else {
				others = append(others, one)
			}
		}
		if err := r.readFiles(ctx, files); err != nil {
			return err
		}
		if err := r.packets.ReadAll(ctx, others); err != nil {
			return err
		}
	}
	return nil
}

func hasFiles(reads []region.Read) bool {
	for i := range reads {
		if reads[i].Region >= region.FirstFileID {
			return true
		}
	}
	return false
}

func (r *kernelReader) readFiles(ctx context.Context, reads []region.Read) (err error) {
	if len(reads) == 0 {
		return nil
	}
	now := time.Now()
	if r.files == nil && now.Before(r.tryAt) {
		return fmt.Errorf("the agent is asked again in %v: %w", r.tryAt.Sub(now).Round(time.Second), r.why)
	}
	if r.files == nil {
		r.files, err = tcp.Dial(ctx, r.address, r.key)
	}
	if err == nil {
		err = r.files.ReadAll(ctx, reads)
	}
	// A file may have ended, which says nothing of the connection: it is looked at.
	if err == nil || r.files != nil && (errors.Is(err, region.ErrGone) || errors.Is(err, region.ErrBounds)) && r.files.Alive() == nil {
		return err
	}
	if errors.Is(err, region.ErrGone) { // the connection is, and no file
		err = errors.New(err.Error())
	}
	r.tryAt, r.why = now.Add(askEvery), err
	return errors.Join(err, r.closeFiles())
}

func (r *kernelReader) closeFiles() (err error) {
	if r.files != nil {
		err = r.files.Close()
		r.files = nil
	}
	return err
}

// Close ends both.
func (r *kernelReader) Close() error { return errors.Join(r.packets.Close(), r.closeFiles()) }
