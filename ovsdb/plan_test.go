package ovsdb

import (
	"errors"
	"fmt"
	"testing"
)

func TestCheckTarget(t *testing.T) {
	for target, good := range map[string]bool{
		"tcp:192.0.2.1:6640": true, "ssl:[2001:db8::1]:6640": true, "unix:/run/db.sock": true,
		"tcp:192.0.2.1:0": false, "tcp:192.0.2.1:99999": false, "tcp:192.0.2.1:ovsdb": false, "tcp:192.0.2.1": false,
		"ssl:switch:6640": false, "ssl:2001:db8::1:6640": false, "unix:db.sock": false, "http:192.0.2.1:80": false, "": false,
	} {
		if err := CheckTarget(target); (err == nil) != good {
			t.Errorf("%q: %v", target, err)
		}
	}
}

// What cannot be done at one port is told by its number, and rows of others stay even
// where they hang on ours.
func TestPlan(t *testing.T) {
	one, two, none := 1, 2, -1
	id := func(s string) *string { return &s }
	dpid, us := "000000000000000a", map[string]string{OwnerTag: "us"}
	r := rows{
		bridges: []bridgeRow{{UUID: "b", Name: "br0", DatapathID: &dpid, Ports: []string{"p1", "p2", "p3"}}},
		ports: []portRow{
			{UUID: "p1", Name: "eth1", Interfaces: []string{"i1"}, QoS: id("theirs")},
			{UUID: "p2", Name: "eth2", Interfaces: []string{"i2"}, QoS: id("ours")},
			{UUID: "p3", Name: "eth3", Interfaces: []string{"i3"}, QoS: id("away")},
		},
		interfaces: []interfaceRow{{UUID: "i1", Number: &one}, {UUID: "i2", Number: &two}, {UUID: "i3", Number: &none}},
		qos: []qosRow{
			{UUID: "theirs", Type: TypeHTB},
			{UUID: "stray", Type: TypeHTB, IDs: us},
			{UUID: "away", Type: TypeHTB, IDs: us},
			{UUID: "ours", Type: "linux-hfsc", IDs: us, Queues: map[int]string{1: "q1", 5: "q5"}, Config: map[string]string{"max-rate": "1000000"}},
		},
		queues: []queueRow{{UUID: "q1", IDs: us}, {UUID: "q5"}},
	}
	s := r.state()
	b, ok := s.Bridge(10)
	if !ok {
		t.Fatalf("%+v", s.Bridges)
	}
	ops, err := s.plan(b, "us", Wanted{Queues: map[uint32]Root{1: root(1e6, 0), 2: root(1e6, 0), 9: root(1e6, 0)}})
	var single PortErrors
	if !errors.As(err, &single) || len(single) != 2 || !errors.Is(single[1], ErrForeign) || !errors.Is(single[9], ErrNoPort) {
		t.Errorf("%v", err)
	}
	done := map[string]bool{}
	for _, op := range ops {
		id := ""
		if len(op.Where) > 0 {
			id = fmt.Sprint(op.Where[0].Value)
		}
		done[op.Op+" "+id] = true
		if owned := len(op.Where) > 1 && fmt.Sprint(op.Where[1].Value) == fmt.Sprint(textMap(us)); op.Op != "insert" && op.Table != "Port" && !owned {
			t.Errorf("%s in %s whoever it belongs to now: %v", op.Op, op.Table, op.Where)
		}
	}
	for _, op := range []string{"delete {q1}", "delete {stray}", "update {ours}"} {
		if !done[op] {
			t.Errorf("%s is missing: %v", op, done)
		}
	}
	for _, op := range []string{"delete {q5}", "delete {theirs}", "delete {ours}", "update {p1}", "delete {away}", "update {p3}"} {
		if done[op] {
			t.Errorf("%s: it is somebody else's, or only away", op)
		}
	}
	ops, err = s.plan(b, "us", Wanted{})
	if err != nil {
		t.Error(err)
	}
	taken := map[string]bool{}
	for _, op := range ops {
		if op.Table == "Port" {
			taken[fmt.Sprint(op.Where[0].Value, op.Where[1].Value)] = true
		}
	}
	if len(taken) != 2 || !taken["{p2} {ours}"] || !taken["{p3} {away}"] {
		t.Errorf("nothing is wanted: what is taken from ports is %v", taken)
	}
}

// root returns a discipline with a tenth of the rate guaranteed to each queue.
func root(rate uint64, ids ...uint32) Root {
	r := Root{Rate: rate}
	for _, id := range ids {
		mark := uint8(3 + 4*id)
		r.Queues = append(r.Queues, Queue{ID: id, MinRate: rate / 10, MaxRate: rate, Priority: uint8(7 - id), Mark: &mark, Tags: map[string]string{"class": fmt.Sprint("c", id)}})
	}
	return r
}
