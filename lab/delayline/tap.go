package delayline

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/namespace"
)

// End describes one end of a link: the TAP device to make, and its namespace.
type End struct {
	// Namespace is the path of the network namespace; empty means the caller's.
	Namespace string `json:"namespace,omitempty"`
	// Interface is the TAP's name.
	Interface string `json:"interface"`
	// Offload reports whether the kernel behind the TAP accepts and sends super-packets and partial
	// checksums. A switch port needs complete frames: false.
	Offload bool `json:"offload,omitempty"`
}

// tap is an open TAP device. The device exists as long as it is open.
type tap struct {
	fd   int
	name string
}

// openTAP makes the TAP device of an end in its namespace.
func openTAP(e End) (*tap, error) {
	if len(e.Interface) == 0 || len(e.Interface) >= unix.IFNAMSIZ {
		return nil, fmt.Errorf("interface name %q is not 1 to %d bytes", e.Interface, unix.IFNAMSIZ-1)
	}
	var t *tap
	err := namespace.Do(e.Namespace, func() (err error) {
		t, err = newTAP(e)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("TAP %s in %s: %w", e.Interface, e.Namespace, err)
	}
	return t, nil
}

func newTAP(e End) (*tap, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	t := &tap{fd: fd, name: e.Interface}
	if err := t.configure(e); err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

func (t *tap) configure(e End) error {
	ifr, err := unix.NewIfreq(e.Interface)
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if err := unix.IoctlIfreq(t.fd, unix.TUNSETIFF, ifr); err != nil {
		return fmt.Errorf("TUNSETIFF: %w", err)
	}
	offload := 0
	if e.Offload {
		offload = unix.TUN_F_CSUM | unix.TUN_F_TSO4 | unix.TUN_F_TSO6 | unix.TUN_F_TSO_ECN
	}
	if err := unix.IoctlSetInt(t.fd, unix.TUNSETOFFLOAD, offload); err != nil {
		return fmt.Errorf("TUNSETOFFLOAD: %w", err)
	}
	return nil
}

// setCarrier plugs the cable in or out.
func (t *tap) setCarrier(up bool) error {
	value := 0
	if up {
		value = 1
	}
	if err := unix.IoctlSetPointerInt(t.fd, unix.TUNSETCARRIER, value); err != nil {
		return fmt.Errorf("carrier of %s: %w", t.name, err)
	}
	return nil
}

func (t *tap) close() { _ = unix.Close(t.fd) }

// errGone means that a TAP was removed while the process used it.
var errGone = errors.New("TAP device is gone")
