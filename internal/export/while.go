package export

import (
	"context"
	"path/filepath"
)

// While opens an Exporter and sends while work runs, and for drainTime after that. The files are read into o first. The
// error is that of work, or of opening the Exporter.
func While(ctx context.Context, o Options, files Files, work func(*Exporter) error) error {
	if err := files.Read(&o); err != nil {
		return err
	}
	e, err := Open(o)
	if err != nil {
		return err
	}
	defer e.Close()
	sending, stop := context.WithCancel(context.WithoutCancel(ctx))
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_ = e.Run(sending) // ends with sending alone
	}()
	defer func() {
		stop()
		<-sent
	}()
	return work(e)
}

// Target is a server, and the files of credentials for it.
type Target struct {
	Options
	Files
}

// Targets are what two URLs ask for: the one of a server, as Options o and files say, and the one of another backend,
// which gets OTLP and neither tenant nor credentials. Either may be empty.
func Targets(o Options, files Files, backend string) (all []Target) {
	if o.Server != "" {
		all = append(all, Target{o, files})
	}
	if backend != "" {
		all = append(all, Target{Options{Server: backend, OTLP: true, Spool: filepath.Join(o.Spool, "otlp"),
			MaxBytes: o.MaxBytes, MaxBackoff: o.MaxBackoff, Logger: o.Logger}, Files{CA: files.CA}})
	}
	return all
}

// WhileAll does as While with several servers.
func WhileAll(ctx context.Context, targets []Target, work func([]*Exporter) error) error {
	if len(targets) == 0 {
		return work(nil)
	}
	last := len(targets) - 1
	return WhileAll(ctx, targets[:last], func(others []*Exporter) error {
		return While(ctx, targets[last].Options, targets[last].Files, func(e *Exporter) error {
			return work(append(others, e))
		})
	})
}

// OTLP reports whether the exporter sends series, and no frames.
func (e *Exporter) OTLP() bool { return e.options.OTLP }
