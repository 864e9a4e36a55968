package sos

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/api/client"
	"github.com/sluice-net/sluice/internal/packetsocket"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// TestSilentEndIsRememberedOverRestart kills the controller during a session whose server
// sends nothing to a controller, because rules match all its packets. A hostile host claims
// the server's address and place before the next controller starts. The controller does not
// believe it: it asks the server, which answers, and the session ends normally.
func TestSilentEndIsRememberedOverRestart(t *testing.T) {
	t.Parallel()
	top := lab.WAN("sosmemory", wan)
	top.Hosts = append(top.Hosts, lab.Host{Name: "thief"})
	top.Links = append(top.Links, lab.Link{A: lab.End{Node: "thief"}, B: lab.End{Node: "s1"}})
	p := newProcessWorld(t, top)
	next := p.inParts(80, 1, killPart, killSize-killPart)
	d := p.fetch(80)
	before := p.live()
	p.eventually("the server's place is known and kept", func() bool { _, known := p.host(p.lab.Host("server").Addr()); return known && p.unsaved() == "0" })
	is, _ := p.host(p.lab.Host("server").Addr())
	p.kill()

	stop := p.claimAll("thief", "server")
	p.start()
	p.eventually("the server has answered where it is", func() bool {
		if h, known := p.host(p.lab.Host("server").Addr()); known && (h.MAC != is.MAC || h.At != is.At) {
			t.Fatalf("the server's address is said to be %s's at %v, is %s's at %v", h.MAC, h.At, is.MAC, is.At)
		}
		return p.hasEvent("network.host.refused")
	})
	p.ready()
	if h, _ := p.host(p.lab.Host("server").Addr()); h.MAC != is.MAC || h.At != is.At {
		t.Errorf("the server's address is said to be %s's at %v, is %s's at %v", h.MAC, h.At, is.MAC, is.At)
	}
	if after := p.live(); after.ID != before.ID {
		t.Errorf("after the restart the session is %+v, was %+v", after, before)
	}
	next()
	d.wantContent(1)
	stop()
	p.clean()
}

// knownHost is a host as the controller knows it.
type knownHost struct {
	MAC string       `json:"mac"`
	IPs []netip.Addr `json:"ips"`
	At  struct {
		Switch string `json:"switch"`
		Port   uint32 `json:"port"`
	} `json:"at"`
}

// host returns the host that has an address according to a controller that may not be
// running.
func (p *processWorld) host(a netip.Addr) (knownHost, bool) {
	var all []knownHost
	if !p.try("network/hosts", &all) {
		return knownHost{}, false
	}
	i := slices.IndexFunc(all, func(h knownHost) bool { return slices.Contains(h.IPs, a) })
	if i < 0 {
		return knownHost{}, false
	}
	return all[i], true
}

// claimAll makes a host claim, ten times a second until stop, that another host's address
// is its own and that the other host is where it is itself.
func (p *processWorld) claimAll(thief, victim string) (stop func()) {
	p.t.Helper()
	var socket *packetsocket.Socket
	err := p.lab.Host(thief).Do(func() error {
		i, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		socket, err = packetsocket.Open(i, packetsocket.Options{SendOnly: true})
		return err
	})
	if err != nil {
		p.t.Fatal(err)
	}
	addr := p.lab.Host(victim).Addr()
	ctx, cancel := context.WithCancel(p.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer func() { _ = socket.Close() }()
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			for _, host := range []string{thief, victim} {
				frame := packet.AppendARPRequest(nil, openflow.MAC(p.lab.Host(host).MAC()), addr, addr, 0)
				if err := socket.Send(frame); err != nil && ctx.Err() == nil {
					p.t.Errorf("claiming: %v", err)
				}
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	stop = func() { cancel(); <-ended }
	p.t.Cleanup(stop)
	return stop
}

// unsaved returns how many hosts the controller has not stored in their present state.
func (p *processWorld) unsaved() string {
	p.t.Helper()
	token, err := os.ReadFile(filepath.Join(p.dir, "data", "token"))
	if err != nil {
		p.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, "http://"+controllerAPI+"/metrics", http.NoBody)
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	c := http.Client{Transport: &http.Transport{DialContext: p.lab.Control().DialContext, DisableKeepAlives: true}, Timeout: 5 * time.Second}
	resp, err := c.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\nsluice_network_hosts_unsaved ")
	number, _, _ := strings.Cut(rest, "\n")
	return number
}

// hasEvent reports whether the controller, if it is running, has an event of a kind.
func (p *processWorld) hasEvent(kind string) (has bool) {
	ctx, cancel := context.WithTimeout(p.t.Context(), 2*time.Second)
	defer cancel()
	seen := errors.New("seen")
	err := p.rest.Events(ctx, client.EventsRequest{Resume: true, Kinds: []string{kind}}, func(e client.Event) error {
		if e.Kind == kind {
			return seen
		}
		return nil
	})
	return errors.Is(err, seen)
}
