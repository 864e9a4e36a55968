package testbed

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover"
	"github.com/sluice-net/sluice/services/handover/mobile"
)

// MobileOptions describes a host of the lab as a mobile device of a domain.
type MobileOptions struct {
	Host   *lab.LiveHost
	Binary string // path of sluice
	LogDir string // folder for the daemon's output; must exist
	Home   Registry
	Device string // name at its home
	Number byte   // distinguishes the devices of a network; 0 means 1
	Class  string
	// Interfaces lists the interfaces in order of preference. Only the first is used until Move.
	Interfaces []string
}

// Registry registers devices: it is the controller of their home.
type Registry interface {
	PutDevice(ctx context.Context, id string, spec handover.DeviceSpec) error
}

// Mobile is the daemon of a mobile device, a process on a host of the lab.
type Mobile struct {
	*mobile.Client
	o      MobileOptions
	dir    string
	spec   handover.DeviceSpec
	daemon *Daemon
	addr   netip.Addr
}

// configFile is the name of the file with the daemon's configuration.
const configFile = "mobile.yaml"

// vniMAC returns the address of the device's virtual interface.
func (o MobileOptions) vniMAC() openflow.MAC { return openflow.MAC{0x0e, 0, 0, 0, 0, max(o.Number, 1)} }

// StartMobile registers the device at its home, starts its daemon, and returns when the device has
// an address.
func StartMobile(ctx context.Context, o MobileOptions) (*Mobile, error) {
	dir, err := os.MkdirTemp("", "sluice-mobile-")
	if err != nil {
		return nil, fmt.Errorf("mobile device: %w", err)
	}
	m := &Mobile{o: o, dir: dir}
	if err := m.start(ctx); err != nil {
		m.Close()
		return nil, fmt.Errorf("mobile device %s: %w: %s", o.Device, err, m.lastWords())
	}
	return m, nil
}

func (m *Mobile) start(ctx context.Context) error {
	var key [32]byte
	if _, err := rand.Read(key[:]); err != nil {
		return err
	}
	m.spec = handover.DeviceSpec{MACs: []string{m.o.vniMAC().String()}, Class: m.o.Class, Key: hex.EncodeToString(key[:])}
	for _, name := range m.o.Interfaces {
		var n int
		if _, err := fmt.Sscanf(name, "eth%d", &n); err != nil {
			return fmt.Errorf("interface %q: %w", name, err)
		}
		m.spec.MACs = append(m.spec.MACs, openflow.MAC(m.o.Host.MACOf(n)).String())
	}
	if err := m.o.Home.PutDevice(ctx, m.o.Device, m.spec); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(m.dir, "key"), []byte(m.spec.Key+"\n"), 0o600); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(m.dir, configFile), []byte(m.config()), 0o600); err != nil {
		return err
	}
	m.Client = mobile.Dial(m.Socket())
	return m.run(ctx)
}

// statusWithin bounds the time to ask the daemon for its state.
const statusWithin = 5 * time.Second

// run starts the daemon and returns when the device has an address.
func (m *Mobile) run(ctx context.Context) error {
	p, err := StartDaemon(ctx, m.o.Host, m.log(), m.o.Binary, "mobile", "run", "--config", filepath.Join(m.dir, configFile))
	if err != nil {
		return err
	}
	m.daemon = p
	return Poll(ctx, "the device's address", func() error {
		asking, cancel := context.WithTimeout(ctx, statusWithin)
		defer cancel()
		s, err := m.Status(asking)
		if err == nil && (s.Lease == nil || s.Active == "") {
			err = errors.New("it has none")
		}
		if err == nil {
			m.addr = s.Lease.Address.Addr()
		}
		return err
	})
}

func (m *Mobile) log() string { return filepath.Join(m.o.LogDir, "mobile-"+m.o.Device+".log") }

func (m *Mobile) lastWords() string { return Tail(m.log(), lastWords) }

// Addr returns the device's address.
func (m *Mobile) Addr() netip.Addr { return m.addr }

// Socket returns the path of the daemon's control socket.
func (m *Mobile) Socket() string { return filepath.Join(m.dir, "mobile.sock") }

// PID returns the process ID of the daemon.
func (m *Mobile) PID() int { return m.daemon.PID() }

// Kill ends the daemon as a crash would.
func (m *Mobile) Kill() { m.daemon.Kill() }

// Restart starts the daemon again, and returns when the device has an address.
func (m *Mobile) Restart(ctx context.Context) error {
	if err := m.run(ctx); err != nil {
		return fmt.Errorf("mobile device %s: %w: %s", m.o.Device, err, m.lastWords())
	}
	return nil
}

// Move moves the device to another interface, on which it stays even if the interface fails.
func (m *Mobile) Move(ctx context.Context, name string) (mobile.Move, error) {
	return m.Client.Move(ctx, mobile.MoveRequest{Interface: name, Hold: -1})
}

// Prefer moves the device to an interface once that works well, and leaves later decisions to the
// device's policy, which uses the first interface that works.
func (m *Mobile) Prefer(ctx context.Context, name string) error {
	if err := m.Auto(ctx); err != nil {
		return err
	}
	if err := m.await(ctx, name, false); err != nil {
		return err
	}
	if _, err := m.Client.Move(ctx, mobile.MoveRequest{Interface: name}); err != nil {
		return err
	}
	return m.await(ctx, name, true)
}

// await waits until the latest probes of an interface have been answered and, if active is set, the
// device uses the interface.
func (m *Mobile) await(ctx context.Context, name string, active bool) error {
	return Poll(ctx, "interface "+name, func() error {
		s, err := m.Status(ctx)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(s.Interfaces, func(i mobile.InterfaceStatus) bool { return i.Name == name })
		switch {
		case i < 0:
			return errors.New("the daemon does not know it")
		case s.Interfaces[i].Silent || s.Interfaces[i].Loss > 0 || s.Interfaces[i].Probes == 0:
			return fmt.Errorf("%.0f %% of %d probes were lost", 100*s.Interfaces[i].Loss, s.Interfaces[i].Probes)
		case active && s.Active != name:
			return fmt.Errorf("the device uses %q", s.Active)
		}
		return nil
	})
}

// SetClass assigns the device another class, and so another policy.
func (m *Mobile) SetClass(ctx context.Context, class string) error {
	m.spec.Class = class
	return m.o.Home.PutDevice(ctx, m.o.Device, m.spec)
}

// Close ends the daemon, which restores the device's network configuration.
func (m *Mobile) Close() error {
	if m.Client != nil {
		m.Client.Close()
	}
	if m.daemon != nil {
		m.daemon.Stop()
	}
	return os.RemoveAll(m.dir)
}

// config returns the daemon's configuration. It has the default values except for those that
// identify the device.
func (m *Mobile) config() string {
	var b strings.Builder
	fmt.Fprintf(&b, `device: %[1]s
key_file: %[2]s/key
state_dir: %[2]s/state
socket: %[3]s
vni: {name: vni0, mac: %[4]q}
`, m.o.Device, m.dir, m.Socket(), m.o.vniMAC().String())
	b.WriteString("interfaces:\n")
	for i, name := range m.o.Interfaces {
		fmt.Fprintf(&b, "  %s: {order: %d}\n", name, i+1)
	}
	return b.String()
}
