package mobilityfirst

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-net/sluice/internal/selfbuild"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/mobilityfirst"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
)

// star is a switch with a host that sends, and four others behind it, with a host each.
func star(name string) lab.Topology {
	t := lab.Topology{Name: name, Switches: []lab.Switch{{Name: "s0"}}, Hosts: []lab.Host{{Name: "a"}}}
	t.Links = append(t.Links, lab.Both("a", "s0", delayline.Params{}))
	for i := 1; i <= 4; i++ {
		s, h := fmt.Sprint("s", i), fmt.Sprint("m", i)
		t.Switches, t.Hosts = append(t.Switches, lab.Switch{Name: s}), append(t.Hosts, lab.Host{Name: h})
		t.Links = append(t.Links, lab.Both("s0", s, delayline.Params{}), lab.Both(h, s, delayline.Params{}))
	}
	return t
}

// member has a group's name at a host of a lab, by programs, and writes what comes to a file.
type member struct {
	host, recv *testbed.Daemon
	out        string
}

// newMember has a host be a member of the group with a key.
func newMember(t *testing.T, l *lab.Lab, name, key string) *member {
	t.Helper()
	dir := t.TempDir()
	m := &member{out: filepath.Join(dir, "out")}
	socket := filepath.Join(dir, "mf.sock")
	m.host = program(t, l.Host(name), filepath.Join(dir, "host.log"), "mf", "host", "--interface", "eth0", "--socket", socket)
	eventually(t, "the host of "+name+" runs", func() bool { _, err := os.Stat(socket); return err == nil })
	var err error
	m.recv, err = testbed.StartDaemon(context.WithoutCancel(t.Context()), l.Host(name), filepath.Join(dir, "recv.log"),
		"sh", "-c", `exec "$0" mf recv --follow --socket "$1" --name-key "$2" > "$3"`, selfbuild.Binary(t), socket, key, m.out)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.recv.Kill)
	return m
}

// Chunks for a group go to each host that has its name: all of them, by a label each, while one is killed and another comes.
func TestMulticast(t *testing.T) {
	begin(t)
	l := lab.New(t, star("mfcast"))
	c := control(t, l)
	key := filepath.Join(t.TempDir(), "group.key")
	name := newName(t, key)
	to, err := frame.ParseGUID(name)
	if err != nil {
		t.Fatal(err)
	}
	at, _ := run(t, l.Host("a"))
	a, _ := open(t, at)
	members := map[string]*member{}
	for _, h := range []string{"m1", "m2", "m3"} {
		members[h] = newMember(t, l, h, key)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("names: %s", c.get(t, "/api/v1/mobilityfirst/names"))
		}
	})
	eventually(t, "three hosts have the name", func() bool { return places(t, c, name) == 3 })
	first, second, third := random(t, 8<<20), random(t, 8<<20), random(t, 8<<20)
	if lost := sendToAll(t, a, to, first); lost > 0 {
		t.Errorf("%d chunks have not been taken by all", lost)
	}
	eventually(t, "all of it is counted by label", func() bool { // the datapath tells its rules from time to time
		for i := 1; i <= 3; i++ {
			if total(labelled(t, l.Switch(fmt.Sprint("s", i)))) < len(first)/1500 {
				return false
			}
		}
		return true
	})
	became := make(chan int, 1)
	go func() { became <- sendToAll(t, a, to, second) }()
	eventually(t, "some of it has come", func() bool { return size(members["m1"].out) > int64(len(first)+len(second)/4) })
	members["m1"].recv.Kill()
	members["m1"].host.Kill()
	t.Logf("%d chunks have not been taken by the one that was killed", <-became)
	members["m4"] = newMember(t, l, "m4", key)
	eventually(t, "it is a member, too", func() bool {
		sendToAll(t, a, to, []byte{0})
		return size(members["m4"].out) > 0
	})
	before := size(members["m4"].out)
	if lost := sendToAll(t, a, to, third); lost > 0 {
		t.Errorf("%d chunks have not been taken by all who were there", lost)
	}
	for _, h := range []string{"m2", "m3", "m4"} {
		got, err := os.ReadFile(members[h].out)
		if err != nil {
			t.Fatal(err)
		}
		if h == "m4" {
			got = got[before:]
		} else {
			if len(got) < len(first)+len(second) || sha256.Sum256(got[:len(first)]) != sha256.Sum256(first) || sha256.Sum256(got[len(first):len(first)+len(second)]) != sha256.Sum256(second) {
				t.Errorf("%s has got something else before", h)
				continue
			}
			got = got[len(got)-len(third):]
		}
		if sha256.Sum256(got) != sha256.Sum256(third) {
			t.Errorf("%s has got something else, %d bytes", h, len(got))
		}
	}
}

// places is at how many places the controller knows a name to be.
func places(t *testing.T, c *controller, name string) int {
	t.Helper()
	var all []mobilityfirst.NameInfo
	if err := json.Unmarshal([]byte(c.get(t, "/api/v1/mobilityfirst/names")), &all); err != nil {
		t.Fatal(err)
	}
	for _, i := range all {
		if i.Name == name {
			return len(i.Places)
		}
	}
	return 0
}

// size is that of a file, zero for none.
func size(file string) int64 {
	i, err := os.Stat(file)
	if err != nil {
		return 0
	}
	return i.Size()
}

// sendToAll sends bytes in chunks to all hosts that have a name, and says how many chunks not all have taken.
func sendToAll(t *testing.T, from *hostapi.Client, to frame.GUID, b []byte) (lost int) {
	const chunk = 200_000
	sent := 0
	became := make(chan error, len(b)/chunk+1)
	for len(b) > 0 {
		n := min(len(b), chunk)
		if err := from.Send(t.Context(), to, frame.Multicast, b[:n], func(err error) { became <- err }); err != nil {
			t.Error(err)
			return lost
		}
		b = b[n:]
		sent++
	}
	for range sent {
		if err := <-became; err != nil {
			lost++
		}
	}
	return lost
}
