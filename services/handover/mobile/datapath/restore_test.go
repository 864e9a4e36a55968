package datapath_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// TestRestore checks that frames pass again after another program has removed or changed what the
// datapath consists of, and that nothing is left when it is closed.
func TestRestore(t *testing.T) {
	d := newDevice(t)
	before := d.inventory(t)
	dp := d.opened(t, d.config())
	dp.use(wifi, wifi)
	restore := func() (differences int) {
		t.Helper()
		d.must(t, func() error {
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			n, err := dp.inner.Restore(ctx)
			differences = n
			return err
		})
		return differences
	}
	byWifi := d.world.tap(t, "ap-"+wifi)
	for _, c := range []struct {
		change string
		want   int
	}{
		{"true", 0},
		{"tc qdisc del dev " + vni + " clsact", 1},
		{"tc qdisc del dev " + wifi + " clsact && tc qdisc del dev " + lte + " clsact", 2},
		{"tc filter del dev " + wifi + " ingress", 1},
		{"ip link set " + vni + " down", 1},
		{"ip link set " + vni + "-end down", 1},
		{"ip link set " + vni + " address 02:00:00:00:00:77", 1},
		{"ip link del " + vni, 1},
		{"ip link del " + vni + " && ip link add " + vni + " type veth peer name stranger && ip link del " + vni, 1},
	} {
		d.run(t, "sh", "-c", c.change)
		for _, want := range []int{c.want, 0} {
			if n := restore(); n != want {
				t.Errorf("after %q there are %d differences, want %d", c.change, n, want)
			}
		}
		d.run(t, "sh", "-c", "echo 1 >/proc/sys/net/ipv6/conf/"+vni+"/disable_ipv6")
		inside := d.tap(t, vni)
		inside.send(t, udp4(vniMAC, apMAC, own4, peer4, 9, 1))
		byWifi.next(t)
		byWifi.send(t, udp4(apMAC, wifiMAC, peer4, own4, 9, 1))
		inside.next(t)
	}
	d.run(t, "sh", "-c", "ip link del "+vni+" && ip link add "+vni+" type veth peer name stranger")
	d.must(t, func() error {
		if _, err := dp.inner.Restore(context.Background()); err == nil || !strings.Contains(err.Error(), "already an interface of that name") {
			return errors.Join(errors.New("another program's interface is taken over"), err)
		}
		return nil
	})
	d.run(t, "ip", "link", "del", vni)
	if n := restore(); n != 1 {
		t.Errorf("after the name was free again there are %d differences", n)
	}
	dp.close()
	eventually(t, "nothing is left", func() bool { return d.inventory(t) == before })
}
