package pki

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestRenewKeepsHosts(t *testing.T) {
	ca, dir := authority(t)
	issue(t, ca, dir, Request{Role: RoleAgent, Name: "a", Hosts: []string{"a.example", "192.0.2.11", "2001:db8::1"}})
	all := []string{"a.example", "192.0.2.11", "2001:db8::1"}
	for _, c := range []struct {
		name  string
		r     Request
		hosts []string
		want  Renewal
	}{
		{"same again", Request{Role: RoleAgent, Name: "a"}, all, Renewal{Kept: all}},
		{"one less, one more", Request{Role: RoleAgent, Name: "a", Hosts: []string{"192.0.2.11", "192.0.2.12"}}, []string{"192.0.2.11", "192.0.2.12"}, Renewal{Kept: []string{"192.0.2.11"}, Lost: []string{"a.example", "2001:db8::1"}}},
		{"another role", Request{Role: RoleController, Name: "a"}, all, Renewal{Kept: all, Was: RoleAgent}},
		{"new", Request{Role: RoleAgent, Name: "b", Hosts: []string{"b.example"}}, []string{"b.example"}, Renewal{}},
	} {
		r, got, err := ca.Renew(dir, c.r)
		if err != nil || !reflect.DeepEqual(r.Hosts, c.hosts) || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, %+v, %v; want %v, %+v", c.name, r.Hosts, got, err, c.hosts, c.want)
		}
	}
}

func TestRenewRefusesWhatIsNotItsOwn(t *testing.T) {
	ca, dir := authority(t)
	other, _ := authority(t)
	issue(t, other, dir, Request{Role: RoleAgent, Name: "a"})
	if _, _, err := ca.Renew(dir, Request{Role: RoleAgent, Name: "a"}); err == nil || !strings.Contains(err.Error(), "another authority") {
		t.Errorf("another authority's: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "b.crt"), []byte("notes"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := ca.Renew(dir, Request{Role: RoleAgent, Name: "b"}); err == nil || !strings.Contains(err.Error(), "another folder") {
		t.Errorf("no certificate: %v", err)
	}
	if _, _, err := ca.Renew(dir, Request{Role: RoleAgent, Name: "../a"}); err == nil {
		t.Error("a path is taken for a name")
	}
}
