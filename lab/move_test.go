package lab_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
)

// moveTopology returns a line of three switches with a host at each end, joined by cables, and the
// host "phone" with two links: a cable and one with a delay.
func moveTopology(name string) lab.Topology {
	t := lab.Line(name, 3, delayline.Params{})
	t.Hosts = append(t.Hosts, lab.Host{Name: "phone"})
	radio := lab.Both("phone", "s1", delayline.Params{Delay: 5 * time.Millisecond})
	radio.Name = "radio"
	cable := lab.Both("phone", "s1", delayline.Params{})
	cable.Name = "cable"
	t.Links = append(t.Links, radio, cable)
	return t
}

// pings reports whether one of three pings is answered.
func pings(t *testing.T, h *lab.LiveHost, addr string) bool {
	t.Helper()
	return h.Command(testContext(t), "ping", "-c", "3", "-i", "0.2", "-W", "1", addr).Run() == nil
}

func carrier(t *testing.T, h *lab.LiveHost, name string) bool {
	t.Helper()
	up := false
	err := h.Do(func() error {
		i, err := net.InterfaceByName(name)
		if err == nil {
			up = i.Flags&net.FlagRunning != 0
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return up
}

// carrierChanges returns how often a host's interface has lost or got its carrier.
func carrierChanges(t *testing.T, h *lab.LiveHost, name string) (n int) {
	t.Helper()
	text := output(t, h, "ip", "-j", "-s", "-s", "link", "show", "dev", name)
	_, after, found := strings.Cut(text, `"carrier_changes":`)
	if _, err := fmt.Sscanf(after, "%d", &n); err != nil || !found {
		t.Fatalf("%q: %v", text, err)
	}
	return n
}

// TestMoveLink takes a host from switch to switch and back, by a cable and by a
// link in the delay line, and checks that it is reached each time.
func TestMoveLink(t *testing.T) {
	t.Parallel()
	l := lab.New(t, moveTopology("move"))
	ctx := testContext(t)
	forwardAsBridge(t, l, "s1", "s2", "s3")
	phone, h3 := l.Host("phone"), l.Host("h3")
	output(t, phone, "ip", "link", "set", "eth1", "down") // The phone uses one interface at a time.
	for _, link := range []string{"radio", "cable"} {
		if link == "cable" {
			output(t, phone, "ip", "link", "set", "eth0", "down")
			output(t, phone, "ip", "addr", "flush", "dev", "eth0")
			output(t, phone, "ip", "link", "set", "eth1", "up")
			output(t, phone, "ip", "addr", "add", "10.0.0.4/16", "dev", "eth1")
		}
		device := map[string]string{"radio": "eth0", "cable": "eth1"}[link]
		at := "s1"
		for _, to := range []string{"s3", "s2", "s2", "s1", "s3"} {
			before := carrierChanges(t, phone, device)
			if err := l.MoveLink(ctx, link, to); err != nil {
				t.Fatal(err)
			}
			if n := carrierChanges(t, phone, device) - before; n == 0 && to != at {
				t.Errorf("%s has moved to %s, and its carrier has not changed", link, to)
			}
			at = to
			name, port := l.Link(link).Attachment()
			known, err := l.Switch(to).Port(link)
			if name != to || port == 0 || known != port || err != nil {
				t.Errorf("%s is at %s port %d, the switch says %d, %v", link, name, port, known, err)
			}
			ports, err := l.Switch(to).Ofctl(ctx, "dump-ports-desc")
			if err != nil || !strings.Contains(ports, " "+itoa(port)+"(") {
				t.Errorf("%s: %s has no port %d: %v\n%s", link, to, port, err, ports)
			}
			waitFor(t, link+" to have a carrier at "+to, func() bool { return carrier(t, phone, device) })
			if !pings(t, phone, h3.Addr().String()) {
				t.Errorf("%s at %s: the network is not reached", link, to)
			}
		}
	}
	for _, s := range []string{"s1", "s2"} {
		ports, err := l.Switch(s).Vsctl(ctx, "list-ports", "br0")
		if err != nil || len(strings.Fields(ports)) != map[string]int{"s1": 2, "s2": 3}[s] {
			t.Errorf("ports that left are still at %s: %v\n%s", s, err, ports)
		}
	}
}

// TestMovesAtOnce moves two links in circles at the same time, and reads the lab
// meanwhile.
func TestMovesAtOnce(t *testing.T) {
	t.Parallel()
	l := lab.New(t, moveTopology("moves"))
	ctx := testContext(t)
	var group sync.WaitGroup
	for _, link := range []string{"radio", "cable"} {
		group.Go(func() {
			for _, to := range []string{"s2", "s3", "s1", "s2"} {
				if err := l.MoveLink(ctx, link, to); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 5 {
		if len(l.Status(ctx).Links) != 7 {
			t.Error("links are missing from the status")
		}
	}
	group.Wait()
	ports := map[int]bool{}
	for _, link := range []string{"radio", "cable"} {
		name, port := l.Link(link).Attachment()
		if name != "s2" || ports[port] {
			t.Errorf("%s is at %s port %d", link, name, port)
		}
		ports[port] = true
	}
}

// TestMovedLinkIsWrittenDown moves a link by one handle of the lab and finds it by another. Then it
// takes the lab down and looks for leftovers.
func TestMovedLinkIsWrittenDown(t *testing.T) {
	needsRoot(t)
	t.Parallel()
	o := lab.Options{RunDir: t.TempDir()}
	ctx, topology := testContext(t), moveTopology("written"+itoa(os.Getpid()))
	l, err := lab.Up(ctx, topology, o)
	if err != nil {
		t.Fatal(err)
	}
	other, err := lab.Open(l.Name(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		by       *lab.Lab
		link, to string
	}{{l, "radio", "s2"}, {other, "cable", "s3"}, {l, "cable", "s2"}} {
		if err := step.by.MoveLink(ctx, step.link, step.to); err != nil {
			t.Fatal(err)
		}
	}
	for i, h := range []*lab.Lab{l, mustOpen(t, l.Name(), o)} {
		for _, link := range []string{"radio", "cable"} {
			if name, _ := h.Link(link).Attachment(); name != "s2" {
				t.Errorf("handle %d has %s at %s", i, link, name)
			}
		}
	}
	if err := lab.Down(ctx, l.Name(), o); err != nil {
		t.Fatal(err)
	}
	if left := leftovers(t, o.RunDir, l.Name()); len(left) > 0 {
		t.Errorf("left over: %s", strings.Join(left, "\n"))
	}
	if err := l.MoveLink(ctx, "radio", "s1"); !errors.Is(err, lab.ErrNoLab) {
		t.Errorf("moved in a lab that is down: %v", err)
	}
}

func mustOpen(t *testing.T, name string, o lab.Options) *lab.Lab {
	t.Helper()
	l, err := lab.Open(name, o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestFailedMoveIsUndone moves a link to a switch whose daemon does not run.
func TestFailedMoveIsUndone(t *testing.T) {
	t.Parallel()
	l := lab.New(t, moveTopology("undo"))
	ctx := testContext(t)
	forwardAsBridge(t, l, "s1")
	if err := l.Switch("s2").Stop(ctx); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if err := l.MoveLink(short, "radio", "s2"); err == nil {
		t.Error("a link was moved to a switch that does not run")
	}
	if name, port := l.Link("radio").Attachment(); name != "s1" || port == 0 {
		t.Errorf("it is at %s port %d", name, port)
	}
	if !pings(t, l.Host("phone"), l.Host("h1").Addr().String()) {
		t.Error("the link does not work where it was")
	}
}

func TestMovesThatAreRefused(t *testing.T) {
	t.Parallel()
	topology := moveTopology("refuse")
	topology.Switches = append(topology.Switches, lab.Switch{Name: "fast", Offload: true})
	l := lab.New(t, topology)
	for _, c := range []struct {
		link, to, says string
		port           int
	}{
		{"nolink", "s2", "no such link", 0},
		{"radio", "s9", "no switch", 0},
		{"radio", "h1", "no switch", 0},
		{"s1-s2", "s3", "between a host and a switch", 0},
		{"radio", "fast", "offload", 0},
		{"radio", "s2", "taken by link h2-s2", 1},
		{"radio", "s2", "not a port", 70000},
	} {
		if err := l.MoveLinkToPort(testContext(t), c.link, c.to, c.port); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s to %s port %d: %v, want %q", c.link, c.to, c.port, err, c.says)
		}
	}
	if name, port := l.Link("radio").Attachment(); name != "s1" || port != 3 {
		t.Errorf("a refused move has moved it to %s port %d", name, port)
	}
}

// TestLinksThatStartDown plugs in cables that start plugged out, and moves a link that is plugged
// out.
func TestLinksThatStartDown(t *testing.T) {
	t.Parallel()
	topology := moveTopology("down")
	for i := range topology.Links {
		if l := &topology.Links[i]; l.Name != "" {
			l.Down = true
		}
	}
	l := lab.New(t, topology)
	ctx, phone := testContext(t), l.Host("phone")
	down := func() (names []string) {
		for _, k := range l.Status(ctx).Links {
			if !k.Up {
				names = append(names, k.Name)
			}
		}
		return names
	}
	if carrier(t, phone, "eth0") || carrier(t, phone, "eth1") || len(down()) != 2 {
		t.Errorf("cables are plugged in: only %v are down", down())
	}
	for link, name := range map[string]string{"radio": "eth0", "cable": "eth1"} {
		if err := l.MoveLink(ctx, link, "s2"); err != nil {
			t.Fatal(err)
		}
		if carrier(t, phone, name) {
			t.Errorf("%s was plugged in by a move", link)
		}
		if err := l.SetLink(ctx, link, true); err != nil {
			t.Fatal(err)
		}
		waitFor(t, link+" to have a carrier", func() bool { return carrier(t, phone, name) })
	}
	if len(down()) > 0 {
		t.Errorf("still down: %v", down())
	}
}

// TestMovePluggedOut checks that a link of each kind that is plugged out stays so when it is moved.
func TestMovePluggedOut(t *testing.T) {
	t.Parallel()
	l := lab.New(t, moveTopology("moveout"))
	ctx := testContext(t)
	phone := l.Host("phone")
	for link, device := range map[string]string{"radio": "eth0", "cable": "eth1"} {
		if err := l.SetLink(ctx, link, false); err != nil {
			t.Fatal(err)
		}
		waitFor(t, link+" to lose its carrier", func() bool { return !carrier(t, phone, device) })
		if err := l.MoveLink(ctx, link, "s2"); err != nil {
			t.Fatal(err)
		}
		if carrier(t, phone, device) {
			t.Errorf("%s was plugged out, and has a carrier after the move", link)
		}
		if err := l.SetLink(ctx, link, true); err != nil {
			t.Fatal(err)
		}
		waitFor(t, link+" to have a carrier at s2", func() bool { return carrier(t, phone, device) })
	}
}
