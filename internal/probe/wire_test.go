package probe

import (
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// wire carries packets between two namespaces, and does to those of STAMP what a plan says.
type wire struct {
	ends        [2]*os.File
	there, back direction
	// skip packets of STAMP in each direction before the plan begins.
	skip int
}

// direction is the plan of one: of STAMP packets, counted from 0, every lose-th is lost, beginning with loseAt; that of
// number double arrives twice, and that of number swap behind the next.
type direction struct {
	delay                      time.Duration
	lose, loseAt, double, swap int
}

// stampBytes is less than a packet of STAMP with its headers has, and more than one of traceroute.
const stampBytes = 70

func newWire(t *testing.T, a, b *space) *wire {
	w := &wire{}
	for i, end := range []*space{a, b} {
		err := end.inside(func() error {
			fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
			if err != nil {
				return err
			}
			request, err := unix.NewIfreq("wire")
			if err != nil {
				return err
			}
			request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
			if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
				return err
			}
			w.ends[i] = os.NewFile(uintptr(fd), "tun")
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		end.run(t, "ip addr add "+end.Addresses[0].String()+"/24 dev wire")
		end.run(t, "ip link set wire up")
	}
	return w
}

// run carries packets until the test ends.
func (w *wire) run(t *testing.T) {
	var carrying sync.WaitGroup
	carrying.Go(func() { w.there.carry(w.ends[0], w.ends[1], w.skip) })
	carrying.Go(func() { w.back.carry(w.ends[1], w.ends[0], w.skip) })
	t.Cleanup(func() {
		w.ends[0].Close()
		w.ends[1].Close()
		carrying.Wait()
	})
}

type carried struct {
	due    time.Time
	packet []byte
}

func (d *direction) carry(from, to *os.File, skip int) {
	queue := make(chan carried, 4096)
	var writing sync.WaitGroup
	writing.Go(func() { // in order, whatever the host does
		for c := range queue {
			time.Sleep(time.Until(c.due))
			_, _ = to.Write(c.packet)
		}
	})
	defer writing.Wait()
	defer close(queue)
	b := make([]byte, 4096)
	number := -skip
	var held []byte
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		due, packet := time.Now().Add(d.delay), slices.Clone(b[:n])
		const udp = 17
		if n < stampBytes || packet[0]>>4 != 4 || packet[9] != udp {
			queue <- carried{due, packet}
			continue
		}
		switch {
		case number >= 0 && number%d.lose == d.loseAt:
		case number == d.swap:
			held = packet
		default:
			queue <- carried{due, packet}
		}
		if number == d.double {
			queue <- carried{due, packet}
		}
		if number == d.swap+1 {
			queue <- carried{due, held}
		}
		number++
	}
}
