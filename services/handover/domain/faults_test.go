package domain

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// Each message is lost, loses its answer, or arrives twice. Wherever the device then is, its
// packets get there, and no state is left over.
func TestEachMessageLostOrDoubled(t *testing.T) {
	t.Parallel()
	for _, kind := range []Kind{KindNotify, KindReady, KindComplete} {
		for _, what := range []fate{lost, replyLost, doubled} {
			t.Run("proactive, "+string(kind)+" "+string(what), func(t *testing.T) {
				ds := newDomains(t, 2, quick, everybody)
				a, b := ds[0], ds[1]
				mac, id := a.device(1, nil)
				for _, d := range ds {
					d.setFate(once(kind, what))
				}
				err := a.service().Origin.Announce(t.Context(), id, "b", at(b))
				if err != nil && kind == KindNotify {
					// It is unknown whether the message was received: it is withdrawn, and the
					// device is still served where it is.
					if what == doubled {
						t.Fatal(err)
					}
					settles(t, ds, a, id, "a")
					announce(t, a, b, id)
				}
				ip, err := b.dhcp(mac, sign(mac, "secret"), waitLimit)
				wantAddress(t, ip, err, a.addressOf(id))
				settles(t, ds, a, id, "b")
				chainIs(t, ds, a, id, "a", "b")
			})
		}
	}
}

func TestEachReactiveMessageLostOrDoubled(t *testing.T) {
	t.Parallel()
	for _, kind := range []Kind{KindQuery, KindClaim, KindComplete} {
		for _, what := range []fate{lost, replyLost, doubled} {
			t.Run(string(kind)+" "+string(what), func(t *testing.T) {
				ds := newDomains(t, 2, quick, everybody)
				a, b := ds[0], ds[1]
				mac, id := a.device(1, nil)
				a.setFate(once(kind, what))
				// A client asks again, as all clients do, and signs anew.
				var err error
				for range 20 {
					ip, e := b.dhcp(mac, sign(mac, "secret"), 2*time.Second)
					if err = e; err == nil {
						wantAddress(t, ip, err, a.addressOf(id))
						break
					}
					if got := reach(ds, a, id); !slices.Contains(got, "a") {
						t.Fatalf("not taken, packets come out in %v", got)
					}
					eventually(t, "it may be asked again", func() bool { b.service().Receiver.forgetNotFound(); return len(b.service().Receiver.nobodyNow()) == 0 })
				}
				if err != nil {
					t.Fatal(err)
				}
				settles(t, ds, a, id, "b")
				chainIs(t, ds, a, id, "a", "b")
			})
		}
	}
}

func (s *Receiver) nobodyNow() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []string
	for q := range s.notFound {
		list = append(list, q.mac.String())
	}
	return list
}

func TestWithdrawLostOrDoubled(t *testing.T) {
	t.Parallel()
	for _, what := range []fate{lost, replyLost, doubled} {
		t.Run(string(what), func(t *testing.T) {
			ds := newDomains(t, 3, quick, everybody)
			a, b, c := ds[0], ds[1], ds[2]
			_, id := a.device(1, nil)
			move(t, ds, a, a, b, id)
			for _, d := range ds {
				d.setFate(once(KindWithdraw, what))
			}
			announce(t, b, c, id+"@a")
			if err := b.service().Origin.Abandon(t.Context(), id+"@a"); err != nil {
				t.Fatal(err)
			}
			settles(t, ds, a, id, "b")
			chainIs(t, ds, a, id, "a", "b")
			b.service().Receiver.Left(id + "@a")
			eventually(t, "all have forgotten it", func() bool {
				return len(a.service().records.roaming())+len(b.service().records.roaming())+len(c.service().records.roaming()) == 0
			})
		})
	}
}

func TestNeighbourDown(t *testing.T) {
	t.Parallel()
	ds := newDomains(t, 3, quick, everybody)
	a, b, c := ds[0], ds[1], ds[2]
	mac, id := a.device(1, nil)
	b.shut()
	if err := a.service().Origin.Announce(t.Context(), id, "b", at(b)); err == nil {
		t.Fatal("a dead neighbour took an announcement")
	}
	if got := reach(ds, a, id); !slices.Equal(got, []string{"a"}) {
		t.Errorf("packets come out in %v", got)
	}
	// Its home answers: the neighbour that is down delays nothing.
	ip, err := c.dhcp(mac, sign(mac, "secret"), waitLimit)
	wantAddress(t, ip, err, a.addressOf(id))
	// A stranger is found to be unknown without the neighbour that is down.
	if ip, err := c.dhcp([6]byte{2, 9, 9, 9, 9, 9}, nil, waitLimit); !errors.Is(err, errNoAddress) {
		t.Errorf("a stranger got %v: %v", ip, err)
	}
	if st := a.service().Neighbours()[0]; st.Fault == "" {
		t.Errorf("the dead neighbour is not shown as such: %+v", st)
	}
	b.start()
	eventually(t, "what was in the outbox to it is delivered", func() bool { return a.service().Neighbours()[0].Outbox == 0 })
}

// A neighbour accepts connections and does not answer. A device whose home answers is served long
// before the deadline of the question to that neighbour; everything else ends by the deadline.
func TestNeighbourDeaf(t *testing.T) {
	t.Parallel()
	ds := newDomains(t, 3, quick, everybody)
	a, b, c := ds[0], ds[1], ds[2]
	mac, id := a.device(1, nil)
	b.setDelay(func(Kind) time.Duration { return time.Hour })
	ip, err := c.dhcp(mac, sign(mac, "secret"), waitLimit)
	wantAddress(t, ip, err, a.addressOf(id))
	settles(t, ds, a, id, "c")
	c.shut()
	c.timing.Answer, c.timing.Request = 100*time.Millisecond, time.Second
	c.start()
	if ip, err := c.dhcp([6]byte{2, 9, 9, 9, 9, 9}, nil, waitLimit); !errors.Is(err, errNoAddress) {
		t.Errorf("a stranger got %v: %v", ip, err)
	}
	if err := c.service().Origin.Announce(t.Context(), id+"@a", "b", at(b)); err == nil {
		t.Error("a deaf neighbour took an announcement")
	}
	if got := reach(ds, a, id); !slices.Equal(got, []string{"c"}) {
		t.Errorf("packets come out in %v", got)
	}
	b.setDelay(nil)
	settles(t, ds, a, id, "c")
}

// The origin is killed after the branch stands. The device arrives, and the completion waits.
func TestOriginDownAtTheCompletion(t *testing.T) {
	t.Parallel()
	ds := newDomains(t, 2, quick, everybody)
	a, b := ds[0], ds[1]
	mac, id := a.device(1, nil)
	announce(t, a, b, id)
	a.shut()
	ip, err := b.dhcp(mac, sign(mac, "secret"), waitLimit)
	wantAddress(t, ip, err, a.addressOf(id))
	if got := reach(ds, a, id); !slices.Contains(got, "b") {
		t.Errorf("packets come out in %v", got)
	}
	a.start()
	settles(t, ds, a, id, "b")
}

func TestDeviceNeverComes(t *testing.T) {
	t.Parallel()
	timing := quick
	timing.Move = 2 * time.Second
	ds := newDomains(t, 2, timing, everybody)
	a, b := ds[0], ds[1]
	_, id := a.device(1, nil)
	announce(t, a, b, id)
	settles(t, ds, a, id, "a")
	chainIs(t, ds, a, id, "a")
}

// Neither the completion nor anything else gets through from the receiver, and the origin cannot
// ask. The branch must not stay without bound.
func TestReceiverVanishesForGood(t *testing.T) {
	t.Parallel()
	timing := quick
	timing.Move = time.Second
	ds := newDomains(t, 2, timing, everybody)
	a, b := ds[0], ds[1]
	_, id := a.device(1, nil)
	announce(t, a, b, id)
	b.shut()
	eventually(t, "the branch is given up", func() bool { return slices.Equal(reach(ds, a, id), []string{"a"}) })
}

// The completion was lost for so long that the origin withdraws the move: then it learns that the
// device is at the receiver. A device that can prove that must do so.
func TestOverdueButArrived(t *testing.T) {
	t.Parallel()
	for _, signed := range []bool{false, true} {
		timing := quick
		timing.Move = 3 * time.Second
		ds := newDomains(t, 2, timing, everybody)
		a, b := ds[0], ds[1]
		mac, id := a.device(1, func(d *fakeDevice) { d.Signed = signed })
		a.setFate(func(k Kind, _ string) fate {
			if k == KindComplete || k == KindVerify {
				return lost
			}
			return goesThrough
		})
		announce(t, a, b, id)
		ip, err := b.dhcp(mac, sign(mac, "secret"), waitLimit)
		wantAddress(t, ip, err, a.addressOf(id))
		if signed {
			eventually(t, "the move is overdue", func() bool { return a.sawEvent("overdue") })
			if got := reach(ds, a, id); !slices.Contains(got, "a") {
				t.Errorf("handed over on the neighbour's word alone: %v", got)
			}
			a.setFate(nil)
		}
		eventually(t, "the origin has handed it over", func() bool { return slices.Equal(reach(ds, a, id), []string{"b"}) })
	}
}

// A failure of the host must leave no state behind.
func TestHostFails(t *testing.T) {
	t.Parallel()
	boom := errors.New("a switch refuses")
	t.Run("the receiver cannot prepare", func(t *testing.T) {
		ds := newDomains(t, 2, quick, everybody)
		a, b := ds[0], ds[1]
		_, id := a.device(1, nil)
		b.host.setFail("prepare", boom)
		if err := a.service().Origin.Announce(t.Context(), id, "b", at(b)); codeOf(err) != CodeFailed {
			t.Errorf("announced: %v", err)
		}
		settles(t, ds, a, id, "a")
		chainIs(t, ds, a, id, "a")
	})
	t.Run("the origin cannot branch", func(t *testing.T) {
		ds := newDomains(t, 2, quick, everybody)
		a, b := ds[0], ds[1]
		_, id := a.device(1, nil)
		a.host.setFail("redirect", boom)
		if err := a.service().Origin.Announce(t.Context(), id, "b", at(b)); !errors.Is(err, boom) {
			t.Errorf("announced: %v", err)
		}
		settles(t, ds, a, id, "a")
		chainIs(t, ds, a, id, "a")
	})
	t.Run("the origin cannot redirect at once", func(t *testing.T) {
		ds := newDomains(t, 2, quick, everybody)
		a, b := ds[0], ds[1]
		mac, id := a.device(1, func(d *fakeDevice) { d.Signed = false })
		announce(t, a, b, id)
		a.host.setFail("redirect", boom)
		ip, err := b.dhcp(mac, nil, waitLimit)
		wantAddress(t, ip, err, a.addressOf(id))
		eventually(t, "it was tried", func() bool {
			a.host.mu.Lock()
			defer a.host.mu.Unlock()
			return len(a.host.calls) > 2
		})
		if got := reach(ds, a, id); !slices.Contains(got, "b") {
			t.Errorf("packets come out in %v", got)
		}
		a.host.setFail("redirect", nil)
		settles(t, ds, a, id, "b")
	})
}

// A neighbour whose clock is wrong refuses everything. Operators have to see that, even while the
// neighbour sends messages itself.
func TestFaultOfANeighbourWithAnotherClock(t *testing.T) {
	t.Parallel()
	timing := quick
	timing.Hello = 20 * time.Millisecond
	ds := newDomains(t, 2, timing, everybody)
	a, b := ds[0], ds[1]
	a.shut()
	a.now = func() time.Time { return time.Now().Add(time.Hour) }
	a.start()
	for _, d := range []*testDomain{a, b} {
		eventually(t, d.name+" shows it", func() bool { return strings.Contains(d.service().Neighbours()[0].Fault, string(CodeReplay)) })
	}
}
