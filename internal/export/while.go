package export

import "context"

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
