package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

var same = cmp.Options{
	cmp.Comparer(func(a, b Address) bool { return a.AddrPort == b.AddrPort }),
	cmp.Comparer(func(a, b rule.Layout) bool { return a == b }),
	cmpopts.EquateComparable(netip.Addr{}),
	cmpopts.EquateEmpty(),
}

func TestDefaultsAreValid(t *testing.T) {
	if _, err := loadSample(Sources{}); err != nil {
		t.Errorf("controller: %v", err)
	}
	if err := Load(Sources{}, DefaultAgent()); err == nil || !strings.Contains(err.Error(), "control.tls.cert") {
		t.Errorf("an agent without certificates: %v", err)
	}
}

func threeTables(t *testing.T) rule.Layout {
	l, err := rule.NewLayout(0, 10, 20)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestTables checks the forms of tables: a number, a mapping, and the one that leaves them to the
// switch.
func TestTables(t *testing.T) {
	c := sampleController()
	text := "network:\n  switches:\n    00000000000000a1: {tables: 1}\n    00000000000000a2: {tables: {classify: 0, service: 10, route: 20}}\n    00000000000000a3: {tables: auto}\n"
	if err := Parse(Sources{File: "f"}, []byte(text), c); err != nil {
		t.Fatal(err)
	}
	for d, want := range map[openflow.DatapathID]rule.Layout{0xa1: rule.OneTable, 0xa2: threeTables(t), 0xa3: {}} {
		if got := c.Network.Switches[d].Tables.Layout; got != want {
			t.Errorf("%v: %v, want %v", d, got, want)
		}
	}
}

func TestExamplesReadBack(t *testing.T) {
	controller, want := sampleController(), sampleController()
	want.Network.Switches = map[openflow.DatapathID]SwitchIs{
		0xa1: {Name: "edge", Rewrite: "l2", Bundles: "auto", Tables: Tables{rule.OneTable}}, 0xa2: {Rewrite: "auto", Bundles: "auto", Tables: Tables{threeTables(t)}},
	}
	want.Network.StatsInterval = 50 * time.Second
	for name, text := range map[string]string{"example": Example(want), "show": Render(want)} {
		if err := Parse(Sources{File: name}, []byte(text), controller); err != nil {
			t.Errorf("%s:\n%v\n%s", name, err, text)
		}
		if d := cmp.Diff(want, controller, same...); d != "" {
			t.Errorf("%s reads back differently:\n%s", name, d)
		}
	}
	agent := &Agent{}
	if err := Parse(Sources{File: "agent"}, []byte(Example(DefaultAgent())), agent); err == nil || strings.Count(err.Error(), "\n") > 0 {
		t.Errorf("the agent's example should lack certificates only: %v", err)
	}
	if agent.Sessions != DefaultAgent().Sessions || agent.Transfer != DefaultAgent().Transfer {
		t.Errorf("the agent's example reads back differently: %+v", agent)
	}
}

func TestEverySettingIsDocumented(t *testing.T) {
	for _, c := range []any{sampleController(), DefaultAgent()} {
		walk(reflect.ValueOf(c).Elem(), "", func(s setting) {
			if s.tag.Get("doc") == "" {
				t.Errorf("%T: %s has no documentation", c, s.key)
			}
			if s.section {
				return
			}
			if s.tag.Get("pattern") != "" && s.tag.Get("form") == "" {
				t.Errorf("%s has a pattern but no words for it", s.key)
			}
			if s.tag.Get("pattern") == "" && s.value.Kind() != reflect.Slice && s.value.Kind() != reflect.Map && !inLimits(s.value, s.tag) {
				t.Errorf("%s: the default is not within the limits", s.key)
			}
		})
	}
}

func TestLayers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.yaml")
	text := "log: {level: warn}\napi:\n  listen: 127.0.0.1:1\nstore:\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := loadSample(Sources{
		File: file,
		Env: []string{
			"SLUICE_API_LISTEN=127.0.0.1:2", "SLUICE_LOG_FORMAT=json", "SLUICE_STORE_PREFIX=123", "SLUICE_TOKEN=x", "SLUICE_SERVER=y",
			"SLUICE_OPENFLOW_LISTEN=127.0.0.1:7001,[::1]:7002", "SLUICE_SAMPLE_ENABLED=false", "HOME=/",
		},
		Set: []string{"api.listen=127.0.0.1:3", "network.stats_interval=2s", "network.switches={00000000000000a1: {rewrite: l2}}"},
	})
	if err != nil {
		t.Fatal(err)
	}
	got := strings.TrimSpace(fmt.Sprintln(c.Log, c.API.Listen, c.Store.Prefix, c.OpenFlow.Listen, Of[*sampleSection](c).Enabled, c.Network.StatsInterval, c.Network.Switches))
	want := "{warn json} 127.0.0.1:3 123 [127.0.0.1:7001 [::1]:7002] false 2s map[00000000000000a1:{ l2 map[] map[] unknown auto}]"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestSecretsStayHidden(t *testing.T) {
	c := sampleController()
	c.Store.Password = "hunter2"
	j, err := json.Marshal(Plain(c))
	if err != nil {
		t.Fatal(err)
	}
	direct, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "password", c.Store.Password, "store", c.Store)
	for name, text := range map[string]string{
		"render": Render(c), "json": string(j), "direct": string(direct), "v": fmt.Sprintf("%v", c), "+v": fmt.Sprintf("%+v", *c),
		"#v": fmt.Sprintf("%#v", c.Store), "log": log.String(),
	} {
		if strings.Contains(text, "hunter2") {
			t.Errorf("%s shows the secret: %s", name, text)
		}
	}
	err = Parse(Sources{File: "f"}, []byte("store: {kind: memory, password: hunter2}"), sampleController())
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a problem beside a secret: %v", err)
	}
}

func TestAllProblemsAtOnce(t *testing.T) {
	err := Parse(Sources{File: "f.yaml", Env: []string{"SLUICE_API_OPEN_READS=maybe"}, Set: []string{"log.level=loud"}},
		[]byte("data_dir: here\nlog: {format: xml}\nnothing: 1\n"), sampleController())
	var all Problems
	if !errors.As(err, &all) || len(all) != 5 {
		t.Fatalf("want 5 problems, got: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(Example(sampleController())))
	f.Add([]byte("a: &a [*a]\n"))
	f.Add([]byte("log: &l {level: info}\napi: *l\n<<: *l\n"))
	f.Add([]byte("---\n---\n"))
	f.Add([]byte("network: {switches: {? [a] : b}}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, into := range []Checked{sampleController(), DefaultAgent()} {
			if err := Parse(Sources{File: "f", NoFiles: true}, text, into); err != nil {
				if _, ok := err.(Problems); !ok || err.Error() == "" {
					t.Errorf("not Problems: %v", err)
				}
				continue
			}
			// What was accepted can be shown and read back.
			var again Checked = &Agent{}
			if _, ok := into.(*Controller); ok {
				again = sampleController()
			}
			if err := Parse(Sources{File: "again", NoFiles: true}, []byte(Render(into)), again); err != nil {
				t.Errorf("accepted, but not when shown: %v", err)
			}
		}
	})
}

// TestEmptiedFile checks that a program that reads its configuration again refuses a file without a
// setting.
func TestEmptiedFile(t *testing.T) {
	for _, text := range []string{"", "\n", "# only a comment\n", "---\n", "null\n", "{}\n"} {
		file := filepath.Join(t.TempDir(), "controller.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := loadSample(Sources{File: file}); err != nil {
			t.Errorf("%q at the start: %v", text, err)
		}
		if _, err := loadSample(Sources{File: file, Again: true, Set: []string{"log.level=debug"}}); err == nil || !strings.Contains(err.Error(), "no setting in it") {
			t.Errorf("%q while running: %v, want no setting in it", text, err)
		}
	}
	if _, err := loadSample(Sources{Again: true}); err != nil {
		t.Errorf("without a file: %v", err)
	}
}

// TestOldNames checks that settings under an old name are read under the new one from the file, the
// environment and flags, with a warning.
func TestOldNames(t *testing.T) {
	file := someFile(t)
	for name, s := range map[string]Sources{
		"file":        {File: "f.yaml"},
		"environment": {Env: []string{"SLUICE_SOS_TLS_CERT=" + file, "SLUICE_SOS_TLS_KEY=" + file, "SLUICE_SOS_TLS_CA=" + file}},
		"flags":       {Set: []string{"sos.tls.cert=" + file, "sos.tls.key=" + file, "sos.tls.ca=" + file}},
	} {
		c := DefaultController([]ServiceSection{{"sos", "A service.", &sampleSection{}}})
		text := ""
		if s.File != "" {
			text = fmt.Sprintf("sos:\n  tls: {cert: %[1]s, key: %[1]s, ca: %[1]s}\n", file)
		}
		if err := Parse(s, []byte(text), c); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if want := (TLS{Cert: file, Key: file, CA: file}); !reflect.DeepEqual(c.Agents.TLS, want) || len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0], "agents.tls") {
			t.Errorf("%s: %+v, warnings %v", name, c.Agents.TLS, c.Warnings)
		}
	}
	c := DefaultController([]ServiceSection{{"sos", "A service.", &sampleSection{}}})
	text := fmt.Sprintf("sos: {tls: {cert: %[1]s, key: %[1]s, ca: %[1]s}}\nagents: {tls: {cert: %[1]s, key: %[1]s, ca: %[1]s}}\n", file)
	if err := Parse(Sources{File: "f.yaml"}, []byte(text), c); err == nil || !strings.Contains(err.Error(), "f.yaml:1: sos.tls") || !strings.Contains(err.Error(), "keep agents.tls alone") {
		t.Errorf("both names: %v", err)
	}
}
