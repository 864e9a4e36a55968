package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/cli/command"
)

// TestStatusNamesWhatIsWrong checks that the services report their problems, and why connections
// went directly.
func TestStatusNamesWhatIsWrong(t *testing.T) {
	const fault = "agent west is not placed: no host answers; check its port"
	url := fakeController(t, map[string]string{
		"/api/v1/status": `{"version":"1","errors":[{"service":"sos","error":"` + fault + `"}]}`,
		"/api/v1/sos/status": `{"enabled":true,"errors":["` + fault + `"],"direct":[
			{"reason":"no-agent","count":17,"latest":"2026-01-02T03:04:05Z","cause":"west is draining","remedy":"look at the agents"}]}`,
	})
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"status"}, []string{"error in sos", fault}},
		{[]string{"sos", "status"}, []string{fault, "no-agent  17", "west is draining  look at the agents"}},
	} {
		code, out, errOut := sluice(t, append(c.args, "--server", url)...)
		if code != command.ExitOK {
			t.Fatal(errOut)
		}
		for _, want := range c.want {
			if !strings.Contains(out, want) {
				t.Errorf("%v does not say %q:\n%s", c.args, want, out)
			}
		}
	}
}

func TestStatusWarnsOfCertificatesThatEnd(t *testing.T) {
	now := time.Now()
	at := func(days int) string { return now.Add(time.Duration(days)*day + time.Hour).Format(time.RFC3339) }
	url := fakeController(t, map[string]string{"/api/v1/status": `{"version":"1","certificates":[
		{"key":"api.tls","name":"ctl","file":"a.crt","expiry":"` + at(200) + `"},
		{"key":"agents.tls","name":"ctl","file":"b.crt","expiry":"` + at(29) + `"},
		{"key":"ovsdb.tls","name":"ctl","file":"c.crt","expiry":"` + at(-2) + `"},
		{"key":"store.tls","file":"d.crt","error":"no such file"}]}`})
	code, out, errOut := sluice(t, "status", "--server", url)
	if code != command.ExitOK {
		t.Fatal(errOut)
	}
	for key, want := range map[string]string{"api.tls": "until", "agents.tls": "ENDS IN 29 DAYS", "ovsdb.tls": "HAS ENDED", "store.tls": "no such file"} {
		_, rest, _ := strings.Cut(out, "certificate "+key)
		line, _, _ := strings.Cut(rest, "\n")
		if !strings.Contains(line, want) || key == "api.tls" && strings.Contains(line, "ENDS") {
			t.Errorf("%s: %q, want %q", key, line, want)
		}
	}
}
