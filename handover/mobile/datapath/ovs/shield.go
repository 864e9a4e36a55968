package ovs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// shield keeps the kernel's own stack from what the userspace datapath takes
// from the interfaces.
type shield struct{ table string }

func shieldOf(vni string) shield {
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' {
			return r
		}
		return '_'
	}, vni)
	return shield{table: "sluice_" + clean}
}

// cover makes the shield stand before the interfaces named, and no others.
// Frames that concern the link itself stay with it.
func (s shield) cover(ctx context.Context, names []string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "table netdev %s {}\ndelete table netdev %s\ntable netdev %s {\n", s.table, s.table, s.table)
	for i, name := range names {
		fmt.Fprintf(&b, "chain i%d {\ntype filter hook ingress device %q priority -500; policy drop;\n", i, name)
		b.WriteString("ether type 0x888e accept\nether daddr & ff:ff:ff:ff:ff:f0 == 01:80:c2:00:00:00 accept\n}\n")
	}
	b.WriteString("}\n")
	if _, err := command(ctx, b.String(), "nft", "-f", "-"); err != nil {
		return fmt.Errorf("shielding the kernel's stack from %s: %w", strings.Join(names, ", "), err)
	}
	return nil
}

// remove takes the shield away.
func (s shield) remove(ctx context.Context) error {
	script := fmt.Sprintf("table netdev %s {}\ndelete table netdev %s\n", s.table, s.table)
	_, err := command(ctx, script, "nft", "-f", "-")
	return err
}

// The commands of ethtool for generic receive offload.
const (
	ethtoolGetGRO = 0x2b
	ethtoolSetGRO = 0x2c
)

// ethtoolValue is struct ethtool_value.
type ethtoolValue struct{ command, data uint32 }

// switchGRO sets generic receive offload and returns what it was.
func switchGRO(name string, on bool) (was bool, err error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	now := ethtoolValue{command: ethtoolGetGRO}
	if err := ethtool(fd, name, &now); err != nil {
		return false, fmt.Errorf("interface %s: reading GRO: %w", name, err)
	}
	if was = now.data != 0; was == on {
		return was, nil
	}
	change := ethtoolValue{command: ethtoolSetGRO}
	if on {
		change.data = 1
	}
	if err := ethtool(fd, name, &change); err != nil {
		return was, fmt.Errorf("interface %s: setting GRO: %w", name, err)
	}
	return was, nil
}

func ethtool(fd int, name string, v *ethtoolValue) error {
	request := struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte // the rest of the union in struct ifreq
	}{data: unsafe.Pointer(v)}
	if copy(request.name[:], name) == unix.IFNAMSIZ {
		return errors.New("name too long")
	}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request))); errno != 0 {
		return errno
	}
	return nil
}
