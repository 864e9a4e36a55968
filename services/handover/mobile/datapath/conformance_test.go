package datapath_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/mobile/datapath"
)

// TestOutward sends frames from the VNI and checks what leaves.
func TestOutward(t *testing.T) {
	d := newDevice(t)
	dp := d.opened(t, d.config())
	dp.use(wifi, wifi)
	inside, outside := d.tap(t, vni), d.world.tap(t, "ap-"+wifi)
	for _, b := range outward() {
		t.Run(b.name, func(t *testing.T) {
			inside.send(t, b.in)
			got := outside.next(t)
			if !bytes.Equal(got, b.want) {
				t.Errorf("left as\n%x, want\n%x", got, b.want)
			}
			if bytes.Contains(got, vniMAC[:]) {
				t.Error("the VNI's address is seen outside")
			}
		})
	}
}

// TestInward sends frames to the device and checks what the VNI gets. After each frame that is
// dropped it sends one that is not.
func TestInward(t *testing.T) {
	d := newDevice(t)
	dp := d.opened(t, d.config())
	dp.use(wifi, wifi)
	inside, outside, analyser := d.tap(t, vni), d.world.tap(t, "ap-"+wifi), d.tap(t, wifi)
	for i, b := range inward() {
		t.Run(b.name, func(t *testing.T) {
			outside.send(t, b.in)
			if got := analyser.next(t); !bytes.Equal(got, b.in) {
				t.Errorf("a packet socket on the interface sees\n%x, want\n%x", got, b.in)
			}
			if b.want != nil {
				if got := inside.next(t); !bytes.Equal(got, b.want) {
					t.Errorf("arrived as\n%x, want\n%x", got, b.want)
				}
			}
			outside.send(t, udp4(apMAC, wifiMAC, peer4, own4, 10, byte(i)))
			analyser.next(t)
			if got, want := inside.next(t), udp4(apMAC, vniMAC, peer4, own4, 10, byte(i)); !bytes.Equal(got, want) {
				t.Errorf("after it came\n%x, want\n%x", got, want)
			}
		})
	}
}

// TestInUse checks that only the interfaces in use carry frames.
func TestInUse(t *testing.T) {
	d := newDevice(t)
	dp := d.opened(t, d.config())
	inside, byWifi, byLTE := d.tap(t, vni), d.world.tap(t, "ap-"+wifi), d.world.tap(t, "ap-"+lte)
	number := byte(0)
	out := func(through *wire, mac openflow.MAC) {
		t.Helper()
		number++
		inside.send(t, udp4(vniMAC, apMAC, own4, peer4, 9, number))
		if got, want := through.next(t), udp4(mac, apMAC, own4, peer4, 9, number); !bytes.Equal(got, want) {
			t.Fatalf("left as\n%x, want\n%x", got, want)
		}
	}
	in := func(through *wire, mac openflow.MAC) {
		t.Helper()
		number++
		through.send(t, udp4(apMAC, mac, peer4, own4, 9, number))
		if got, want := inside.next(t), udp4(apMAC, vniMAC, peer4, own4, 9, number); !bytes.Equal(got, want) {
			t.Fatalf("arrived as\n%x, want\n%x", got, want)
		}
	}
	dropped := func(name string, through *wire, mac openflow.MAC) {
		t.Helper()
		number++
		before := dp.stats().Interfaces[name].Inactive
		through.send(t, udp4(apMAC, mac, peer4, own4, 9, number))
		eventually(t, "a frame of an interface that is not in use is counted", func() bool {
			return dp.stats().Interfaces[name].Inactive == before+1
		})
	}
	unsent := func() {
		t.Helper()
		before := dp.stats().Unsent
		inside.send(t, udp4(vniMAC, apMAC, own4, peer4, 9, 0))
		eventually(t, "an unsent frame is counted", func() bool { return dp.stats().Unsent == before+1 })
	}

	unsent() // nothing passes until the first Use
	dropped(wifi, byWifi, wifiMAC)
	dp.use(wifi, wifi)
	out(byWifi, wifiMAC)
	in(byWifi, wifiMAC)
	dropped(lte, byLTE, lteMAC)
	dp.use(lte, wifi, lte)
	out(byLTE, lteMAC)
	in(byWifi, wifiMAC)
	in(byLTE, lteMAC)
	dp.use(lte, lte)
	dropped(wifi, byWifi, wifiMAC)
	in(byLTE, lteMAC)
	dp.use("", lte)
	unsent()
	in(byLTE, lteMAC)

	err := dp.call(func(ctx context.Context) error { return dp.inner.Use(ctx, "eth9", []string{lte}) })
	if !errors.Is(err, datapath.ErrUnknownInterface) {
		t.Errorf("use of an unknown interface: %v", err)
	}
	in(byLTE, lteMAC)
	if s := dp.stats(); s.Send != "" || !slices.Equal(s.Receive, []string{lte}) {
		t.Errorf("in use: send %q, receive %q", s.Send, s.Receive)
	}
}

// TestReplug removes interfaces and brings them back, with another index and another address.
func TestReplug(t *testing.T) {
	d := newDevice(t)
	dp := d.opened(t, d.config())
	dp.use(wifi, wifi)
	d.must(t, func() error {
		link, err := netlink.LinkByName(wifi)
		if err != nil {
			return err
		}
		return netlink.LinkDel(link)
	})
	moved := openflow.MAC{0x02, 0x66, 0, 0, 0, 0x06}
	pair(t, d.space, wifi, moved, d.world, "ap-"+wifi, apMAC)
	attach := func(i datapath.Interface) {
		t.Helper()
		if err := dp.call(func(ctx context.Context) error { return dp.inner.Attach(ctx, i) }); err != nil {
			t.Fatal(err)
		}
	}
	attach(datapath.Interface{Name: wifi, MAC: moved})
	inside, outside := d.tap(t, vni), d.world.tap(t, "ap-"+wifi)
	check := func(number byte) {
		t.Helper()
		inside.send(t, udp4(vniMAC, apMAC, own4, peer4, 9, number))
		if got, want := outside.next(t), udp4(moved, apMAC, own4, peer4, 9, number); !bytes.Equal(got, want) {
			t.Errorf("left as\n%x, want\n%x", got, want)
		}
		outside.send(t, udp4(apMAC, moved, peer4, own4, 9, number))
		if got, want := inside.next(t), udp4(apMAC, vniMAC, peer4, own4, 9, number); !bytes.Equal(got, want) {
			t.Errorf("arrived as\n%x, want\n%x", got, want)
		}
	}
	check(1)
	detach := func(name string) error {
		return dp.call(func(ctx context.Context) error { return dp.inner.Detach(ctx, name) })
	}
	if err := detach(wifi); err != nil {
		t.Fatal(err)
	}
	if err := detach(wifi); !errors.Is(err, datapath.ErrUnknownInterface) {
		t.Errorf("detaching twice: %v", err)
	}
	if s := dp.stats(); s.Send != "" || len(s.Receive) != 0 {
		t.Errorf("after detaching it, in use: %q, %q", s.Send, s.Receive)
	}
	attach(datapath.Interface{Name: wifi, MAC: moved})
	dp.use(wifi, wifi)
	outside.drain()
	check(2)
}

// TestMTU checks that the VNI's MTU fits all interfaces.
func TestMTU(t *testing.T) {
	d := newDevice(t)
	setMTU := func(name string, mtu int) {
		d.must(t, func() error {
			link, err := netlink.LinkByName(name)
			if err != nil {
				return err
			}
			return netlink.LinkSetMTU(link, mtu)
		})
	}
	vniMTU := func() (mtu int) {
		d.must(t, func() error {
			i, err := net.InterfaceByName(vni)
			if err == nil {
				mtu = i.MTU
			}
			return err
		})
		return mtu
	}
	setMTU(lte, 1400)
	dp := d.opened(t, d.config())
	dp.use(wifi, wifi)
	if got := vniMTU(); got != 1400 {
		t.Errorf("MTU %d, want that of the smaller interface, 1400", got)
	}
	if err := dp.call(func(ctx context.Context) error { return dp.inner.Detach(ctx, lte) }); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the MTU follows", func() bool { return vniMTU() == 1500 })
	inside, outside := d.tap(t, vni), d.world.tap(t, "ap-"+wifi)
	full := udp4(vniMAC, apMAC, own4, peer4, 9, 1)
	full = append(full, make([]byte, 1514-len(full))...)
	inside.send(t, full)
	if got := outside.next(t); len(got) != 1514 {
		t.Errorf("a frame of 1514 bytes left with %d", len(got))
	}
}

// TestCopies sends the same packets by both interfaces, in all kinds of order.
func TestCopies(t *testing.T) {
	cases := []struct {
		name string
		sent string // letters: packets by wifi; capitals: the same by lte
		want string
	}{
		{"wifi first", "aA", "a"},
		{"lte first", "Aa", "a"},
		{"interleaved", "aAbBcC", "abc"},
		{"one behind", "abcdABCD", "abcd"},
		{"lost on wifi", "aABcC", "abc"},
		{"lost on lte", "aAbcC", "abc"},
		{"the sender repeats", "aaAA", "aa"},
		{"the sender repeats, alternating", "aAaA", "aa"},
		{"repeated, one lost on wifi", "aAAaA", "aaa"},
	}
	d := newDevice(t)
	dp := d.opened(t, d.config())
	dp.use(wifi, wifi, lte)
	inside, byWifi, byLTE := d.tap(t, vni), d.world.tap(t, "ap-"+wifi), d.world.tap(t, "ap-"+lte)
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			for _, letter := range c.sent {
				// The case's number keeps it apart from the others.
				port := uint16(1000 + i)
				if letter >= 'a' {
					byWifi.send(t, udp4(apMAC, wifiMAC, peer4, own4, port, byte(letter)))
				} else {
					byLTE.send(t, udp4(apMAC, lteMAC, peer4, own4, port, byte(letter)|0x20))
				}
			}
			byWifi.send(t, udp4(apMAC, wifiMAC, peer4, own4, uint16(2000+i), 'z'))
			var got []byte
			for {
				frame := inside.next(t)
				number := frame[len(frame)-4]
				if number == 'z' {
					break
				}
				got = append(got, number)
			}
			if string(got) != c.want {
				t.Errorf("sent %q, delivered %q, want %q", c.sent, got, c.want)
			}
		})
	}
}
