package agentapi

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func TestSessionID(t *testing.T) {
	id := NewSessionID()
	if got, err := ParseSessionID(id.String()); err != nil || got != id || id.IsZero() {
		t.Errorf("%v %v", got, err)
	}
	for _, s := range []string{"", "00", strings.Repeat("g", 32), strings.Repeat("0", 33)} {
		if _, err := ParseSessionID(s); err == nil {
			t.Errorf("%q is accepted", s)
		}
	}
}

// TestKeyIsHidden checks that no way of printing shows a key, and that JSON contains all of it.
func TestKeyIsHidden(t *testing.T) {
	k := NewKey()
	b, err := json.Marshal(k)
	if err != nil {
		t.Fatal(err)
	}
	var got Key
	if err := json.Unmarshal(b, &got); err != nil || got != k || k.IsZero() {
		t.Errorf("round trip: %v", err)
	}
	req := PrepareRequest{Key: k}
	for _, s := range []string{fmt.Sprint(k), fmt.Sprintf("%v %+v %#v %s", k, k, k, k), fmt.Sprintf("%+v", req)} {
		if strings.Contains(s, strings.Trim(string(b), `"`)) || strings.Contains(s, fmt.Sprint(k[:4])) {
			t.Errorf("%q shows the key", s)
		}
	}
	for _, s := range []string{`"x"`, `"AAAA"`, `""`} {
		if json.Unmarshal([]byte(s), &got) == nil {
			t.Errorf("%s is accepted", s)
		}
	}
}

// FuzzPrepareRequest checks that an accepted request survives a round trip, whatever the body is.
func FuzzPrepareRequest(f *testing.F) {
	f.Add([]byte(`{"id":"00000000000000000000000000000001","role":"client","client":"127.0.0.1:1","idle":"3s","context":{"a":1}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var r PrepareRequest
		if json.Unmarshal(b, &r) != nil {
			return
		}
		out, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		var again PrepareRequest
		if err := json.Unmarshal(out, &again); err != nil || again.ID != r.ID || again.Key != r.Key || again.Idle != r.Idle || again.Client != r.Client {
			t.Errorf("%s became %s: %v", b, out, err)
		}
	})
}
