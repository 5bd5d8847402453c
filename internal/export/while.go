package export

import "context"

// While opens an Exporter, sends while work runs, and a little longer what work left at its end. The files are read
// into o first. Its error is that of work, or of what kept it from beginning.
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
