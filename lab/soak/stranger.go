package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/lab/testbed"
)

const (
	// strangersAtOnce is the number of connections that a stranger opens to one port.
	strangersAtOnce = 30
	// strangerTimeout bounds the time that a stranger keeps each connection.
	strangerTimeout = 5 * time.Second
	// strangerBytes is the number of random bytes that a stranger sends.
	strangerBytes = 4 << 10
)

// listener is a port at which a program of Sluice listens.
type listener struct {
	place   testbed.Inside
	network string // tcp or udp
	addr    netip.AddrPort
}

// strangers connects to every port at which the controller, the agents and the device's daemon
// listen. Some connections stay silent, some send random bytes, and some are closed at once.
func (h *harm) strangers(parent context.Context, stop <-chan struct{}) error {
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	go func() {
		select {
		case <-stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	r := h.random(8)
	for pause(ctx, stop, randomDuration(r, time.Second, 3*time.Second)) {
		all, err := h.listeners(ctx)
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			return err
		}
		var reached atomic.Int64
		tasks.Each(all, len(all), func(l listener) {
			if h.disturb(ctx, l) {
				reached.Add(1)
			}
		})
		if reached.Load() > 0 { // Programs that are being killed listen at no port.
			h.rec.event(fmt.Sprintf("%d strangers at once at each open port", strangersAtOnce))
		}
	}
	return context.Cause(parent)
}

// listeners returns the ports that ss(8) lists.
func (h *harm) listeners(ctx context.Context) (all []listener, err error) {
	type place interface {
		testbed.Place
		testbed.Inside
	}
	for _, p := range []place{h.lab.Control(), h.lab.Host("x"), h.lab.Host("y"), h.lab.Host("dev1")} {
		for network, flag := range map[string]string{"tcp": "-Hltn", "udp": "-Hlun"} {
			out, err := p.Command(ctx, "ss", flag).Output()
			if err != nil {
				return nil, fmt.Errorf("list listening ports: %w", err)
			}
			addrs, err := parseListeners(string(out))
			if err != nil {
				return nil, err
			}
			for _, a := range addrs {
				all = append(all, listener{p, network, a})
			}
		}
	}
	return all, nil
}

// parseListeners reads the local addresses of sockets from ss(8)'s table.
func parseListeners(text string) (all []netip.AddrPort, err error) {
	const local = 3 // the column behind the state and two queues
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) <= local {
			return nil, fmt.Errorf("ss: no local address in %q", line)
		}
		host, port := fields[local], ""
		if i := strings.LastIndexByte(host, ':'); i >= 0 {
			host, port = host[:i], host[i+1:]
		}
		host, _, _ = strings.Cut(host, "%") // remove the name of an interface
		host = strings.Trim(host, "[]")
		if host == "*" {
			host = "0.0.0.0"
		}
		addr, err := netip.ParseAddrPort(net.JoinHostPort(host, port))
		if err != nil {
			return nil, fmt.Errorf("ss: %w", err)
		}
		if addr.Addr().IsUnspecified() {
			addr = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), addr.Port())
		}
		all = append(all, addr)
	}
	return all, nil
}

// disturb opens a stranger's connections to one port, and reports whether a program listened there.
func (h *harm) disturb(ctx context.Context, l listener) (reached bool) {
	ctx, cancel := context.WithTimeout(ctx, strangerTimeout)
	defer cancel()
	crew := tasks.NewCrew(strangersAtOnce)
	defer crew.Wait()
	for i := range strangersAtOnce {
		conn, err := dial(ctx, l)
		if err != nil {
			break // Nobody listens, or no more connections are accepted.
		}
		reached = true
		rubbish := make([]byte, strangerBytes)
		for j := range rubbish {
			rubbish[j] = byte(rand.Uint32())
		}
		crew.Do(func() {
			defer conn.Close()
			_ = converse(ctx, conn, i%3, rubbish) // Any end of the connection is intended.
		})
	}
	return reached
}

func dial(ctx context.Context, l listener) (conn net.Conn, err error) {
	err = l.place.Do(func() (err error) {
		var d net.Dialer
		conn, err = d.DialContext(ctx, l.network, l.addr.String())
		return err
	})
	return conn, err
}

// converse stays silent, sends random bytes, or returns at once.
func converse(ctx context.Context, conn net.Conn, manner int, rubbish []byte) error {
	const silent, loud = 0, 1
	switch manner {
	case silent:
		<-ctx.Done()
		return nil
	case loud:
		deadline, _ := ctx.Deadline()
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
		_, err := conn.Write(rubbish)
		var b [512]byte
		for err == nil {
			_, err = conn.Read(b[:])
		}
		return errors.Join(err, ctx.Err())
	}
	return nil
}
