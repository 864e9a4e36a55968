package domain

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/pki"
)

func envelopeFor(from, to string, now time.Time) Envelope {
	return Envelope{From: from, To: to, Time: now, Nonce: newToken(), Sequence: uint64(now.UnixNano())}
}

// rogue returns a client with the certificate of one domain, to send arbitrary messages.
func rogue(t testing.TB, as, to *testDomain) *client {
	t.Helper()
	c := newClient(neighbourFor(t, as, to), nil)
	t.Cleanup(c.close)
	return c
}

// state returns all state that a refused message must not change.
func (d *testDomain) state() string {
	var b strings.Builder
	for _, r := range d.service().records.roaming() {
		r.Changed = time.Time{}
		fmt.Fprintf(&b, "%+v\n", r)
	}
	return b.String() + d.host.snapshot()
}

func stranger(b *testDomain) Visitor {
	ip := b.prefix().Addr().As4()
	ip[3] = 200
	return Visitor{Home: b.name, Device: "own", MACs: []openflow.MAC{{2, 7, 7, 7, 7, 7}}, IP: netip.AddrFrom4(ip), Policy: "saving"}
}

// TestLies lets b, a neighbour in good standing, send c everything that it may not say. Most of it
// is about devices of a.
func TestLies(t *testing.T) {
	t.Parallel()
	ds := newDomains(t, 3, quick, everybody)
	a, b, c := ds[0], ds[1], ds[2]
	_, abroad := a.device(1, nil) // with c
	move(t, ds, a, a, c, abroad)
	_, atHome := a.device(2, nil)
	own, ownID := c.device(3, nil)
	visit := func(edit func(*Visitor)) *Notify {
		v := stranger(b)
		edit(&v)
		return &Notify{Visitor: v, Move: newToken()}
	}
	known := func(d *testDomain, id string) Visitor {
		k, ok := d.host.Device(id)
		if !ok {
			t.Fatal(id)
		}
		return k.Visitor.clone()
	}
	subject := func(home, id string) Subject { return Subject{home, id} }
	c.host.taken[netip.MustParseAddr("10.2.0.99")] = true
	for _, x := range []struct {
		name string
		kind Kind
		m    message
		want Code
	}{
		{"an address of the receiver", KindNotify, visit(func(v *Visitor) { v.IP = netip.MustParseAddr("10.3.0.50") }), CodePrefix},
		{"an address of nobody it knows", KindNotify, visit(func(v *Visitor) { v.IP = netip.MustParseAddr("192.0.2.1") }), CodePrefix},
		{"another's address as its own", KindNotify, visit(func(v *Visitor) { v.IP = netip.MustParseAddr("10.1.0.50") }), CodePrefix},
		{"its address as another's", KindNotify, visit(func(v *Visitor) { v.Home = "a" }), CodePrefix},
		{"an address that the network uses", KindNotify, visit(func(v *Visitor) { v.IP = netip.MustParseAddr("10.2.0.99") }), CodeTaken},
		{"a hardware address of the receiver's device", KindNotify, visit(func(v *Visitor) { v.MACs = append(v.MACs, own) }), CodeTaken},
		{"a device of the receiver that has not left", KindNotify, &Notify{Visitor: known(c, ownID), Move: newToken()}, CodeHere},
		{"a device that the receiver has from its home", KindNotify, &Notify{Visitor: known(a, abroad), Move: newToken()}, CodeHere},
		{"a device that is at its home", KindNotify, &Notify{Visitor: known(a, atHome), Move: newToken()}, CodeNotYours},
		{"a device that its home does not know", KindNotify, visit(func(v *Visitor) { v.Home, v.IP = "a", netip.MustParseAddr("10.1.0.77") }), CodeNotYours},
		{"no address", KindNotify, visit(func(v *Visitor) { v.IP = netip.MustParseAddr("0.0.0.0") }), CodeMalformed},
		{"an IPv6 address", KindNotify, visit(func(v *Visitor) { v.IP = netip.MustParseAddr("2001:db8::1") }), CodeMalformed},
		{"a multicast hardware address", KindNotify, visit(func(v *Visitor) { v.MACs[0][0] = 3 }), CodeMalformed},
		{"a hardware address twice", KindNotify, visit(func(v *Visitor) { v.MACs = append(v.MACs, v.MACs[0]) }), CodeMalformed},
		{"a name that is none", KindNotify, visit(func(v *Visitor) { v.Device = "../x" }), CodeMalformed},
		{"a move that is none", KindNotify, &Notify{Visitor: stranger(b), Move: strings.Repeat("z", 32)}, CodeMalformed},
		{"a branch for no move", KindReady, &Ready{Subject: subject("a", abroad), Move: newToken()}, CodeUnknown},
		{"an arrival that nobody expects", KindComplete, &Complete{Subject: subject("c", ownID), Move: newToken(), Host: "b", Since: time.Now()}, CodeUnknown},
		{"an arrival by relay of a device that is here", KindComplete, &Complete{Subject: subject("c", ownID), Host: "b"}, CodeUnknown},
		{"an arrival of what is not its", KindComplete, &Complete{Subject: subject("a", abroad), Host: "b"}, CodeNotYours},
		{"an arrival elsewhere", KindComplete, &Complete{Subject: subject("a", abroad), Move: newToken(), Host: "a", Since: time.Now()}, CodeMalformed},
		{"an arrival with the receiver", KindComplete, &Complete{Subject: subject("a", abroad), Host: "c"}, CodeMalformed},
		{"an end of what is not its", KindWithdraw, &Withdraw{Subject: subject("a", abroad)}, CodeNotYours},
		{"a claim without proof", KindClaim, &Claim{Subject: subject("c", ownID), Move: newToken(), MAC: own}, CodeEvidence},
		{"a claim with a wrong key", KindClaim, &Claim{Subject: subject("c", ownID), Move: newToken(), MAC: own, Evidence: sign(own, "guess")}, CodeEvidence},
		{"a claim for an unknown device", KindClaim, &Claim{Subject: subject("c", "nobody"), Move: newToken(), MAC: own}, CodeUnknown},
		{"a claim by another's hardware address", KindClaim, &Claim{Subject: subject("c", ownID), Move: newToken(), MAC: openflow.MAC{2, 1}, Evidence: sign(own, "secret")}, CodeNotYours},
		{"a claim for what is elsewhere", KindClaim, &Claim{Subject: subject("a", "car-9"), Move: newToken(), MAC: own}, CodeUnknown},
		{"too much evidence", KindClaim, &Claim{Subject: subject("c", ownID), Move: newToken(), MAC: own, Evidence: &Evidence{Src: own, Message: make([]byte, 1501)}}, CodeMalformed},
		{"evidence about what is not its", KindVerify, &Verify{Subject: subject("a", abroad), Evidence: *sign(own, "secret")}, CodeNotYours},
		{"a question about everybody", KindQuery, &Query{MAC: openflow.Broadcast}, CodeMalformed},
	} {
		t.Run(x.name, func(t *testing.T) {
			speak := rogue(t, b, c)
			before := c.state()
			*x.m.envelope() = envelopeFor("b", "c", time.Now())
			err := speak.send(t.Context(), x.kind, x.m, nil)
			if codeOf(err) != x.want {
				t.Errorf("%v; want code %s", err, x.want)
			}
			if after := c.state(); after != before {
				t.Errorf("it changed\n%s\nto\n%s", before, after)
			}
		})
	}
	if got := reach(ds, a, abroad); !slices.Equal(got, []string{"c"}) {
		t.Errorf("after all the lies packets come out in %v", got)
	}
}

// A message is accepted once, for a while, by one domain, from one sender.
func TestReplayAndDisguise(t *testing.T) {
	t.Parallel()
	ds := newDomains(t, 3, quick, everybody)
	a, b, c := ds[0], ds[1], ds[2]
	speak := rogue(t, a, b)
	fresh := func() *Notify {
		return &Notify{Envelope: envelopeFor("a", "b", time.Now()), Visitor: stranger(a), Move: newToken()}
	}
	first := fresh()
	if err := speak.send(t.Context(), KindNotify, first, nil); err != nil {
		t.Fatal(err)
	}
	withdraw := &Withdraw{Envelope: envelopeFor("a", "b", time.Now()), Subject: first.Visitor.subject(), Move: first.Move}
	if err := speak.send(t.Context(), KindWithdraw, withdraw, nil); err != nil {
		t.Fatal(err)
	}
	if _, known := b.host.Device("own@a"); known {
		t.Fatal("a withdrawn visitor is still known")
	}
	edited := func(edit func(*Notify)) *Notify {
		n := fresh()
		edit(n)
		return n
	}
	for _, x := range []struct {
		name string
		m    *Notify
		want Code
	}{
		{"the same again", first, CodeReplay},
		{"the same with a new nonce, but out of order", edited(func(n *Notify) { n.Sequence = first.Sequence }), CodeReplay},
		{"the same nonce", edited(func(n *Notify) { n.Nonce = first.Nonce }), CodeReplay},
		{"an old one", edited(func(n *Notify) { n.Time = n.Time.Add(-time.Minute) }), CodeReplay},
		{"one from the future", edited(func(n *Notify) { n.Time = n.Time.Add(time.Minute) }), CodeReplay},
		{"one from before the start", edited(func(n *Notify) { n.Time = n.Time.Add(-20 * time.Second) }), CodeReplay},
		{"one for another domain", edited(func(n *Notify) { n.To = "c" }), CodeSender},
		{"one of another domain", edited(func(n *Notify) { n.From = "c" }), CodeSender},
		{"a nonce that is none", edited(func(n *Notify) { n.Nonce = strings.Repeat("-", 32) }), CodeMalformed},
	} {
		before := b.state()
		if err := speak.send(t.Context(), KindNotify, x.m, nil); codeOf(err) != x.want {
			t.Errorf("%s: %v; want code %s", x.name, err, x.want)
		}
		if b.state() != before {
			t.Errorf("%s: it changed something", x.name)
		}
	}
	if !b.sawEvent("refused") {
		t.Error("no event tells of the refusals")
	}
	hello := &Hello{envelopeFor("a", "b", time.Now())}
	for n, want := range []Code{"", CodeReplay} {
		if err := speak.send(t.Context(), KindHello, hello, nil); codeOf(err) != want {
			t.Errorf("hello %d: %v; want code %q", n+1, err, want)
		}
	}
	// What c may say to b, b may not pass on to a as its own.
	wrong := rogue(t, c, a)
	if err := wrong.send(t.Context(), KindHello, &Hello{envelopeFor("b", "a", time.Now())}, nil); codeOf(err) != CodeSender {
		t.Errorf("in the name of another: %v", err)
	}
}

// Certificates of other roles than neighbour are refused, including an operator's with the
// neighbour's name.
func TestWrongCertificates(t *testing.T) {
	t.Parallel()
	ds := newDomains(t, 2, quick, everybody)
	a, b := ds[0], ds[1]
	before := b.state()
	foreign := issueFor(t, a, pki.RoleNeighbour, "a")
	foreign.CA = b.dir + "/ca.crt"
	for _, x := range []struct {
		name  string
		files pki.Files
	}{
		{"an operator of the same name", issueFor(t, b, pki.RoleOperator, "a")},
		{"a controller of the same name", issueFor(t, b, pki.RoleController, "a")},
		{"an agent of the same name", issueFor(t, b, pki.RoleAgent, "a")},
		{"a neighbour that has no agreement", issueFor(t, b, pki.RoleNeighbour, "z")},
		{"another authority's", foreign},
		{"none", pki.Files{CA: b.dir + "/ca.crt"}},
	} {
		config, err := pki.Client(x.files, pki.RoleController)
		if err != nil {
			t.Fatal(err)
		}
		n := neighbourFor(t, a, b)
		n.TLS = config
		speak := newClient(n, nil)
		m := &Notify{Envelope: envelopeFor("a", "b", time.Now()), Visitor: stranger(a), Move: newToken()}
		if err := speak.send(t.Context(), KindNotify, m, nil); err == nil {
			t.Errorf("%s: was accepted", x.name)
		}
		speak.close()
	}
	if b.state() != before {
		t.Error("something changed")
	}
	// And we do not connect to a server that is not the neighbour's.
	n := neighbourFor(t, a, b)
	n.URL = a.url
	speak := newClient(n, nil)
	defer speak.close()
	if err := speak.send(t.Context(), KindHello, &Hello{envelopeFor("a", "a", time.Now())}, nil); err == nil || codeOf(err) != "" {
		t.Errorf("spoke to a server of another authority: %v", err)
	}
}

// A completion must prove where the device is before the origin lets go, even if the receiver
// could not ask before.
func TestCompletionNeedsProof(t *testing.T) {
	t.Parallel()
	ds := newDomains(t, 2, quick, everybody)
	a, b := ds[0], ds[1]
	mac, id := a.device(1, nil)
	announce(t, a, b, id)
	a.setFate(once(KindVerify, lost))
	// A host with the device's hardware address, but without its key, asks in b.
	_, err := b.dhcp(mac, sign(mac, "guess"), waitLimit)
	if err != nil {
		t.Fatal(err) // b cannot know yet
	}
	eventually(t, "b learns that it was not the device", func() bool {
		_, known := b.host.Device(id + "@a")
		return !known
	})
	if got := reach(ds, a, id); !slices.Contains(got, "a") {
		t.Errorf("packets come out in %v", got)
	}
	if !b.sawEvent("orphaned") || !a.sawEvent("no-evidence") {
		t.Error("no event tells of it")
	}
}

func TestUnsignedDevices(t *testing.T) {
	t.Parallel()
	ds := newDomains(t, 2, quick, everybody)
	a, b := ds[0], ds[1]
	mac, id := a.device(1, func(d *fakeDevice) { d.Signed = false })
	if ip, err := b.dhcp(mac, nil, waitLimit); !errors.Is(err, errNoAddress) {
		t.Errorf("by its hardware address alone it got %v: %v", ip, err)
	}
	if got := reach(ds, a, id); !slices.Equal(got, []string{"a"}) {
		t.Errorf("packets come out in %v", got)
	}
	a.shut()
	a.list[0].Unsigned = true
	a.start()
	eventually(t, "b may ask again", func() bool { b.service().Receiver.forgetNotFound(); return len(b.service().Receiver.nobodyNow()) == 0 })
	ip, err := b.dhcp(mac, nil, waitLimit)
	wantAddress(t, ip, err, a.addressOf(id))
	settles(t, ds, a, id, "b")
}

func TestVisitorsAreBounded(t *testing.T) {
	t.Parallel()
	ds := newDomains(t, 2, quick, everybody)
	a, b := ds[0], ds[1]
	b.shut()
	b.list[0].MaxVisitors = 2
	b.start()
	for n := range 3 {
		_, id := a.device(n+1, nil)
		err := a.service().Origin.Announce(t.Context(), id, "b", at(b))
		if n < 2 && err != nil || n == 2 && codeOf(err) != CodeBusy {
			t.Errorf("visitor %d: %v", n+1, err)
		}
	}
}

// Thousands of strangers must not keep the service from others for long.
func TestFloodOfStrangers(t *testing.T) {
	t.Parallel()
	ds := newDomains(t, 2, quick, everybody)
	a, b := ds[0], ds[1]
	mac, id := a.device(1, nil)
	for n := range 2000 {
		b.service().Receiver.Admit(openflow.MAC{2, 8, 8, 8, byte(n >> 8), byte(n)}, at(b), nil)
	}
	var ip netip.Addr
	var err error
	eventually(t, "it is served", func() bool {
		ip, err = b.dhcp(mac, sign(mac, "secret"), 200*time.Millisecond)
		return err == nil
	})
	wantAddress(t, ip, err, a.addressOf(id))
	settles(t, ds, a, id, "b")
	b.service().Receiver.mu.Lock()
	defer b.service().Receiver.mu.Unlock()
	if len(b.service().Receiver.notFound) > maxNotFound || len(b.service().Receiver.asking) > maxAsking {
		t.Errorf("%d and %d addresses are remembered", len(b.service().Receiver.notFound), len(b.service().Receiver.asking))
	}
}
