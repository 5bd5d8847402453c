package traffic

import (
	"context"
	"sync"

	"golang.org/x/sync/errgroup"
)

// session is one connection of a client.
type session interface {
	ask(ctx context.Context) error
	close()
}

// crowd runs a load. Sessions that stay are all open, and have been used, before any goes on.
func crowd(ctx context.Context, l Load, open func(context.Context) (session, error)) error {
	group, ctx := errgroup.WithContext(ctx)
	opening := make(chan struct{}, atOnce)
	var all sync.WaitGroup // opened
	all.Add(l.Connections)
	for range l.Connections {
		opening <- struct{}{}
		group.Go(func() error {
			s, err := open(ctx)
			if err == nil {
				defer s.close()
				err = s.ask(ctx)
			}
			<-opening
			all.Done()
			if err != nil || l.OneRequestEach {
				return err
			}
			all.Wait()
			for range l.Requests - 1 {
				if err := s.ask(ctx); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}
