package mobile_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/live"
	"github.com/sluice-net/sluice/internal/nettest"
	"github.com/sluice-net/sluice/internal/packetsocket"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/services/handover/mobile"
	"github.com/sluice-net/sluice/services/handover/mobile/datapath/ebpf"
	"github.com/sluice-net/sluice/services/handover/mobile/fake"
)

// field is a device on two cables and a router behind both, which sends the device's packets to
// where it has last asked for its address. It simulates the network of a handover of the saving
// policy, with real frames and no switch.
type field struct {
	t           *testing.T
	device, far *nettest.Host
	net         *fake.Network
	dir         string

	cmd *exec.Cmd
	log *os.File
}

const address = "10.8.0.10/24"

func newField(t *testing.T) *field {
	t.Helper()
	live.Test(t)
	t.Parallel()
	if err := ebpf.Probe(); err != nil {
		t.Skip(err)
	}
	f := &field{t: t, device: nettest.NewHost(t), far: nettest.NewHost(t), dir: t.TempDir(), net: fake.NewNetwork(address)}
	var err error
	if f.log, err = os.Create(filepath.Join(f.dir, "log")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the daemon said:\n%s", f.said())
		}
		_ = f.log.Close()
	})
	for i, prefix := range []netip.Prefix{netip.MustParsePrefix("192.0.2.7/24"), {}} {
		name := fmt.Sprintf("eth%d", i)
		nettest.Cable(t, nettest.Port{On: f.device, Name: name, Address: prefix}, nettest.Port{On: f.far, Name: name})
	}
	f.far.Run("sysctl", "-qw", "net.ipv4.ip_forward=1")
	f.far.Run("ip", "addr", "add", "10.8.0.1/32", "dev", "lo")
	for i := range 2 {
		f.serve(fmt.Sprintf("eth%d", i))
	}
	return f
}

// setLink sets the device's cable eth0 up or down, at the far end.
func (f *field) setLink(state string) {
	f.t.Helper()
	f.far.Run("ip", "link", "set", "eth0", state)
}

// serve answers DHCP at one of the router's interfaces, and leads packets there before it answers.
func (f *field) serve(name string) {
	var socket *packetsocket.Socket
	err := f.far.Do(func() error {
		i, err := net.InterfaceByName(name)
		if err != nil {
			return err
		}
		socket, err = packetsocket.Open(i, packetsocket.Options{Filter: packetsocket.UDPTo(67)})
		return err
	})
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	f.t.Cleanup(func() { cancel(); <-done; _ = socket.Close() })
	answer := f.net.At(name)
	go func() {
		defer close(done)
		for {
			frame, err := socket.Receive(ctx)
			if err != nil {
				if ctx.Err() == nil && errors.Is(err, unix.ENETDOWN) {
					continue
				}
				return
			}
			h, err := packet.Parse(frame.Data)
			if err != nil {
				continue
			}
			reply := answer(frame.Data, &h)
			if reply == nil {
				continue
			}
			args := []string{"route", "replace", strings.TrimSuffix(address, "/24") + "/32", "dev", name}
			if out, err := f.far.Command(ctx, "ip", args...).CombinedOutput(); err != nil && ctx.Err() == nil {
				f.t.Errorf("ip %v: %v: %s", args, err, out)
			}
			if err := socket.Send(reply); err != nil && ctx.Err() == nil {
				f.t.Logf("answer at %s: %v", name, err)
			}
		}
	}()
}

// start runs a daemon on the device.
func (f *field) start(interfaces ...mobile.Interface) *mobile.Client {
	f.t.Helper()
	self, err := os.Executable()
	if err != nil {
		f.t.Fatal(err)
	}
	socket := filepath.Join(f.dir, "s")
	config, err := json.Marshal(child{StateDir: f.dir, Socket: socket, Resolver: filepath.Join(f.dir, "resolv.conf"), Interfaces: interfaces})
	if err != nil {
		f.t.Fatal(err)
	}
	cmd := f.device.Command(context.Background(), self)
	cmd.Env = append(os.Environ(), childConfig+"="+string(config))
	stdin, err := cmd.StdinPipe() // the daemon ends when this process does
	if err != nil {
		f.t.Fatal(err)
	}
	cmd.Stderr = f.log
	if err := cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	f.cmd = cmd
	f.t.Cleanup(func() {
		_ = stdin.Close()
		f.end(unix.SIGKILL)
	})
	c := mobile.Dial(socket)
	f.t.Cleanup(c.Close)
	return c
}

// said returns what the daemon has logged.
func (f *field) said() string {
	b, err := os.ReadFile(f.log.Name())
	if err != nil {
		f.t.Error(err)
	}
	return string(b)
}

// end ends the daemon and waits for it.
func (f *field) end(signal unix.Signal) {
	if f.cmd == nil {
		return
	}
	_ = f.cmd.Process.Signal(signal)
	err := f.cmd.Wait()
	f.cmd = nil
	if signal == unix.SIGTERM && err != nil {
		f.t.Errorf("the daemon: %v", err)
	}
}

// picture returns the device's links, addresses, routes and settings.
func (f *field) picture() string {
	var lines []string
	for _, args := range [][]string{{"-br", "link"}, {"-o", "addr", "show", "scope", "global"}, {"-4", "route"}, {"-6", "route"}} {
		for line := range strings.Lines(f.device.Run("ip", args...)) {
			if !strings.Contains(line, "fe80::") { // the kernel's own, which take a moment to come back
				lines = append(lines, strings.Join(strings.Fields(line), " "))
			}
		}
	}
	for _, name := range []string{"eth0", "eth1"} {
		lines = append(lines, name+" disable_ipv6 "+f.device.Run("cat", "/proc/sys/net/ipv6/conf/"+name+"/disable_ipv6"))
		lines = append(lines, f.device.Run("tc", "filter", "show", "dev", name, "ingress"))
	}
	slices.Sort(lines)
	return strings.TrimSpace(strings.Join(lines, "\n"))
}

// until polls the daemon until its status meets the condition.
func (f *field) until(c *mobile.Client, what string, ok func(mobile.Status) bool) mobile.Status {
	f.t.Helper()
	deadline := time.Now().Add(time.Minute)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for ; ; <-tick.C {
		s, err := c.Status(f.t.Context())
		if err == nil && ok(s) {
			return s
		}
		if time.Now().After(deadline) {
			f.t.Fatalf("never %s: %+v, %v", what, s, err)
		}
	}
}

func active(name string) func(mobile.Status) bool {
	return func(s mobile.Status) bool { return s.Active == name && s.Joining == "" }
}
