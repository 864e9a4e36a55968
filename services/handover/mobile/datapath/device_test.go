package datapath_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	cebpf "github.com/cilium/ebpf"

	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/mobile/datapath"
	"github.com/sluice-net/sluice/services/handover/mobile/datapath/ebpf"
)

var (
	vniMAC  = openflow.MAC{0x02, 0x11, 0, 0, 0, 0x01}
	wifiMAC = openflow.MAC{0x02, 0x22, 0, 0, 0, 0x02}
	lteMAC  = openflow.MAC{0x02, 0x33, 0, 0, 0, 0x03}
	apMAC   = openflow.MAC{0x02, 0x44, 0, 0, 0, 0x04} // the network's side of both
	peerMAC = openflow.MAC{0x02, 0x55, 0, 0, 0, 0x05} // a host behind it
)

const (
	wifi = "wifi"
	lte  = "lte"
	vni  = "vni0"
)

// needs skips a test if the kernel cannot load the programs.
func needs(t testing.TB) {
	t.Helper()
	err := ebpf.Probe()
	var verifier *cebpf.VerifierError
	switch {
	case errors.As(err, &verifier): // a kernel that is too old would also report this, but a rejected program must not be hidden
		t.Fatalf("%+v", verifier)
	case errors.Is(err, datapath.ErrUnsupported):
		t.Skip(err)
	}
}

// device is a namespace with two interfaces, and their other ends in another.
type device struct {
	*space
	world *space
}

func newDevice(t testing.TB) *device {
	t.Helper()
	d := &device{space: newSpace(t), world: newSpace(t)}
	pair(t, d.space, wifi, wifiMAC, d.world, "ap-"+wifi, apMAC)
	pair(t, d.space, lte, lteMAC, d.world, "ap-"+lte, apMAC)
	needs(t)
	return d
}

func (d *device) config() datapath.Config {
	return datapath.Config{
		VNI: vni, VNIMAC: vniMAC,
		Interfaces: []datapath.Interface{{Name: wifi, MAC: wifiMAC}, {Name: lte, MAC: lteMAC}},
	}
}

// within is a datapath whose methods run in the device's namespace.
type within struct {
	t     testing.TB
	space *space
	inner *ebpf.Datapath
}

// opened opens the datapath and closes it with the test.
func (d *device) opened(t testing.TB, c datapath.Config) *within {
	t.Helper()
	w := &within{t: t, space: d.space}
	d.must(t, func() (err error) {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		w.inner, err = ebpf.Open(ctx, c)
		return err
	})
	t.Cleanup(w.close)
	d.must(t, func() error { return os.WriteFile("/proc/sys/net/ipv6/conf/"+vni+"/disable_ipv6", []byte("1"), 0) })
	return w
}

func (w *within) call(f func(context.Context) error) error {
	return w.space.do(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		return f(ctx)
	})
}

func (w *within) use(send string, receive ...string) {
	w.t.Helper()
	if err := w.call(func(ctx context.Context) error { return w.inner.Use(ctx, send, receive) }); err != nil {
		w.t.Fatal(err)
	}
}

// move switches to another interface without loss.
func (w *within) move(from, to string) {
	w.t.Helper()
	w.use(to, from, to)
	w.use(to, to)
}

func (w *within) stats() (s datapath.Stats) {
	w.t.Helper()
	err := w.space.do(func() (err error) {
		s, err = w.inner.Stats()
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

func (w *within) close() {
	w.t.Helper()
	if err := w.space.do(w.inner.Close); err != nil {
		w.t.Errorf("closing: %v", err)
	}
}
