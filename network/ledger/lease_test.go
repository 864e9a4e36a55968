package ledger_test

import (
	"errors"
	"testing"
	"time"

	"github.com/sluice-net/sluice/network/ledger"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

func leased(port uint16) rule.Program {
	p := one(port)
	p.Rules[0].Leased = true
	return p
}

// TestRenewals checks that Renew writes only the leased rules of a key that the switch has
// confirmed, and that these rules time out.
func TestRenewals(t *testing.T) {
	l, o := newLedger(t)
	both := leased(80)
	both.Rules = append(both.Rules, one(81).Rules...)
	change := plan(t, l, o, "a", both)
	plan(t, l, o, "b", one(82)).Confirm()
	if ops := l.Renew(o, "a"); len(ops) != 0 {
		t.Errorf("before it is confirmed %d rules are renewed, want none", len(ops))
	}
	change.Confirm()
	if got := l.Leased(o); len(got) != 1 || got[0] != "a" {
		t.Errorf("keys with leased rules: %v, want a", got)
	}
	ops := l.Renew(o, "a")
	if len(ops) != 1 {
		t.Fatalf("%d rules are renewed, want one", len(ops))
	}
	m, ok := ops[0].Message.(*openflow.FlowMod)
	if !ok || m.Command != openflow.FlowAdd || m.Match != leased(80).Rules[0].Match || m.HardTimeout != uint16(rule.LeaseFor/time.Second) || m.IdleTimeout != 0 {
		t.Errorf("renewed by %+v, want an addition of the leased rule that ends after %v", ops[0].Message, rule.LeaseFor)
	}
	plan(t, l, o, "a", rule.Program{}).Confirm()
	if ops, keys := l.Renew(o, "a"), l.Leased(o); len(ops) != 0 || len(keys) != 0 {
		t.Errorf("after the rules are withdrawn %d are renewed, of keys %v; want none", len(ops), keys)
	}
}

// TestALeaseIsTheOnlyTimeout checks that a leased rule with a timeout of its own is refused.
func TestALeaseIsTheOnlyTimeout(t *testing.T) {
	l, o := newLedger(t)
	for _, set := range []func(r *rule.Rule){
		func(r *rule.Rule) { r.Idle = time.Second },
		func(r *rule.Rule) { r.Hard = time.Second },
	} {
		p := leased(80)
		set(&p.Rules[0])
		if _, err := l.Plan(o, "a", p); !errors.Is(err, ledger.ErrInvalid) {
			t.Errorf("%+v: %v, want %v", p.Rules[0], err, ledger.ErrInvalid)
		}
	}
}
