package handover

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"sync"
	"testing"

	"github.com/sluice-net/sluice/internal/selfbuild"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/services/handover"
)

// TestOrderedHandover lets an operator order a device to move: the network prepares the place, and
// the daemon, which authenticates with its key, gets the order and carries it out.
func TestOrderedHandover(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.MobilityOptions{})
	w.steadfast = true
	binary := selfbuild.Binary(t)
	w.put("classes/seamless", handover.ClassSpec{Policy: "seamless", Trigger: "signed"})
	w.mobile = fmt.Sprintf("orders: {server: \"http://%s\"}\n", w.apiOn("dev1"))
	d := w.device(binary, "dev1", "seamless", 2)
	w.eventually("the daemon listens for orders", func() bool {
		var info handover.DeviceInfo
		w.get("devices/dev1", &info)
		return info.Daemon
	})
	conn := w.connection("dev1")
	for n, name := range []string{"eth1", "eth0", "eth1"} {
		to := w.port("dev1-" + name)
		spec := handover.MoveSpec{Port: handover.Port{PortRef: to}.String(), MAC: hostMAC(w.lab.Host("dev1"), n%2^1).String(), Hold: "1m", Why: "the cell is full"}
		var order handover.Order
		if err := w.do(http.MethodPost, "devices/dev1/move", spec, &order); err != nil {
			t.Fatal(err)
		}
		w.eventually("the device is on "+name, func() bool {
			status, err := d.status()
			return err == nil && status.Active == name && status.Joining == ""
		})
		rec := w.handovers("dev1", 1)[0]
		if rec.To == nil || rec.To.Port.PortRef != to || !rec.Prepared {
			t.Errorf("the network's record: %+v", rec)
		}
		conn.works("on " + name)
	}
	if status, err := d.status(); err != nil || status.Requested != "eth1" || status.RequestedUntil.IsZero() || status.Orders != "connected" {
		t.Errorf("%+v, %v", status, err)
	}
}

// apiOn makes the controller's API reachable on a host, at a loopback address.
func (w *world) apiOn(host string) string {
	w.t.Helper()
	found := regexp.MustCompile(`controller runs.* api=(\S+)`).FindStringSubmatch(w.log.String())
	if found == nil {
		w.t.Fatal("the controller does not say where its API is")
	}
	var l net.Listener
	err := w.lab.Host(host).Do(func() (err error) { l, err = net.Listen("tcp", "127.0.0.1:0"); return err })
	if err != nil {
		w.t.Fatal(err)
	}
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		open []net.Conn
	)
	keep := func(c net.Conn) {
		mu.Lock()
		defer mu.Unlock()
		open = append(open, c)
	}
	wg.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", found[1])
			if err != nil {
				_ = near.Close()
				continue
			}
			keep(near)
			keep(far)
			for _, pair := range [][2]net.Conn{{near, far}, {far, near}} {
				wg.Go(func() {
					_, _ = io.Copy(pair[0], pair[1])
					_ = pair[0].Close()
				})
			}
		}
	})
	w.t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for _, c := range open {
			_ = c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return l.Addr().String()
}
