package kerneltest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Tap sees the packets of an interface, with the kernel's stamps: one that comes in before programs at the interface do,
// one that goes out after them.
type Tap struct{ fd int }

// OpenTap opens a tap of an interface of the network namespace of this thread, until the test ends.
func OpenTap(t *testing.T, device string) (Tap, error) {
	i, err := net.InterfaceByName(device)
	if err != nil {
		return Tap{}, err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return Tap{}, err
	}
	t.Cleanup(func() { unix.Close(fd) })
	return Tap{fd}, errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL}),
			Ifindex: i.Index}))
}

// Each tells of each packet, from its IP header on, that has passed in a direction (PACKET_HOST or PACKET_OUTGOING) since
// the tap was opened or asked.
func (a Tap) Each(direction uint8, f func(packet []byte, at time.Time)) error {
	data, control := make([]byte, 65536), make([]byte, 128)
	for {
		n, length, _, from, err := unix.Recvmsg(a.fd, data, control, 0)
		if errors.Is(err, unix.EAGAIN) {
			return nil
		}
		if err != nil {
			return err
		}
		if link, ok := from.(*unix.SockaddrLinklayer); !ok || link.Pkttype != direction {
			continue
		}
		messages, err := unix.ParseSocketControlMessage(control[:length])
		if err != nil || len(messages) != 1 || messages[0].Header.Type != unix.SCM_TIMESTAMPNS {
			return fmt.Errorf("no stamp of a packet: %v, %w", messages, err)
		}
		stamp := messages[0].Data
		f(data[:n], time.Unix(int64(binary.NativeEndian.Uint64(stamp)), int64(binary.NativeEndian.Uint64(stamp[8:]))))
	}
}
