package agent

import (
	"context"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/services/sos/agentapi"
)

// sends returns the DSCPs of an agent's sockets of a session: those of its connections to the peer,
// and that of its end host's connection.
func (f *flow) sends(a *Agent) (peer []uint8, end uint8) {
	f.p.t.Helper()
	s := a.session(f.id)
	dscp := func(fd int) uint8 {
		tos, err := unix.GetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_TOS)
		if err != nil {
			f.p.t.Fatal(err)
		}
		return uint8(tos >> 2)
	}
	for _, c := range *s.conns.Load() {
		if err := onSocket(c.net, func(fd int) error { peer = append(peer, dscp(fd)); return nil }); err != nil {
			f.p.t.Fatal(err)
		}
	}
	if err := s.end.on(func(fd int) error { end = dscp(fd); return nil }); err != nil {
		f.p.t.Fatal(err)
	}
	return peer, end
}

// useBoth sends a byte from end to end, so that all parts of the session exist.
func (f *flow) useBoth() {
	f.p.t.Helper()
	b := make([]byte, 1)
	if _, err := f.client.Write(b); err != nil {
		f.p.t.Fatal(err)
	}
	if _, err := f.server.Read(b); err != nil {
		f.p.t.Fatal(err)
	}
}

func (f *flow) wantSends(a *Agent, want agentapi.Marks) {
	f.p.t.Helper()
	peer, end := f.sends(a)
	for _, got := range peer {
		if got != want.Peer {
			f.p.t.Errorf("to the peer it sends with DSCP %d, want %d", got, want.Peer)
		}
	}
	if len(peer) == 0 || end != want.End {
		f.p.t.Errorf("%d connections to the peer; to the end host it sends with DSCP %d, want %d", len(peer), end, want.End)
	}
}

// TestMarks checks that a session's marks are set on all of its sockets, from the beginning and
// after a change, and not on those of the next session that uses its connections.
func TestMarks(t *testing.T) {
	p := newPair(t, nil)
	p.marks = map[agentapi.Role]agentapi.Marks{agentapi.RoleClient: {Peer: 11, End: 46}, agentapi.RoleServer: {Peer: 15}}
	f := p.open(agentapi.Params{Connections: 2})
	f.useBoth()
	f.wantSends(p.x, p.marks[agentapi.RoleClient])
	f.wantSends(p.y, p.marks[agentapi.RoleServer])
	later := agentapi.Marks{Peer: 19, End: 10}
	for _, c := range []*agentapi.Client{p.toX, p.toY} {
		if err := c.Mark(t.Context(), f.id, later); err != nil {
			t.Fatal(err)
		}
	}
	f.wantSends(p.x, later)
	f.wantSends(p.y, later)
	if s, err := p.toX.Session(t.Context(), f.id); err != nil || s.Marks != later {
		t.Errorf("%+v, %v: want that the listing says %+v", s.Marks, err, later)
	}
	_ = f.client.Close()
	_ = f.server.Close()
	f.ended(p.x)
	f.ended(p.y)
	eventually(t, "its connections are kept for the next", func() bool { return p.x.warm.size() > 0 })

	p.marks = nil
	next := p.open(agentapi.Params{Connections: 2})
	next.useBoth()
	if s := p.x.session(next.id).describe(); s.Counters.ConnsWarm == 0 {
		t.Error("the next session has none of the connections of the one before")
	}
	next.wantSends(p.x, agentapi.Marks{})
	next.wantSends(p.y, agentapi.Marks{})
}

// TestMarksBeforeTheEnd checks that the first segment to an end host has its mark already.
func TestMarksBeforeTheEnd(t *testing.T) {
	p := newPair(t, nil)
	from, err := reserve(netip.AddrPortFrom(p.clientAddr, 0), "")
	if err != nil {
		t.Fatal(err)
	}
	defer from.close()
	f := &flow{p: p, id: agentapi.NewSessionID(), key: agentapi.NewKey()}
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	x, y := p.requests(f, netip.AddrPortFrom(p.clientAddr, from.port), agentapi.Params{})
	x.Marks.End, y.Marks.End = 46, 10
	if _, err := p.toX.Prepare(ctx, x); err != nil {
		t.Fatal(err)
	}
	if _, err := p.toY.Prepare(ctx, y); err != nil {
		t.Fatal(err)
	}
	check := func(name string, want int) func(fd int) error {
		return func(fd int) error {
			tos, err := unix.GetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_TOS)
			if err == nil && tos>>2 != want {
				t.Errorf("%s: DSCP %d, want %d", name, tos>>2, want)
			}
			return err
		}
	}
	listener, err := p.x.session(f.id).listener.SyscallConn()
	if err == nil {
		err = onRaw(listener, check("what listens for the client", 46))
	}
	if err != nil {
		t.Fatal(err)
	}
	reserved, err := p.y.session(f.id).reserved.file.SyscallConn()
	if err == nil {
		err = onRaw(reserved, check("what will dial the server", 10))
	}
	if err != nil {
		t.Fatal(err)
	}
	x.ID, x.Marks.Peer = agentapi.NewSessionID(), 64
	if _, err := p.toX.Prepare(ctx, x); control.CodeOf(err) != control.CodeBadRequest {
		t.Errorf("DSCP 64: %v, want that it is refused", err)
	}
	if err := p.toX.Mark(ctx, f.id, agentapi.Marks{End: 64}); control.CodeOf(err) != control.CodeBadRequest {
		t.Errorf("DSCP 64: %v, want that it is refused", err)
	}
}
