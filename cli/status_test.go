package cli

import (
	"strings"
	"testing"
	"time"
)

func TestStatusWarnsOfCertificatesThatEnd(t *testing.T) {
	now := time.Now()
	at := func(days int) string { return now.Add(time.Duration(days)*day + time.Hour).Format(time.RFC3339) }
	url := fakeController(t, map[string]string{"/api/v1/status": `{"version":"1","certificates":[
		{"key":"api.tls","name":"ctl","file":"a.crt","expiry":"` + at(200) + `"},
		{"key":"sos.tls","name":"ctl","file":"b.crt","expiry":"` + at(29) + `"},
		{"key":"ovsdb.tls","name":"ctl","file":"c.crt","expiry":"` + at(-2) + `"},
		{"key":"store.tls","file":"d.crt","error":"no such file"}]}`})
	code, out, errOut := sluice(t, "status", "--server", url)
	if code != ExitOK {
		t.Fatal(errOut)
	}
	for key, want := range map[string]string{"api.tls": "until", "sos.tls": "ENDS IN 29 DAYS", "ovsdb.tls": "HAS ENDED", "store.tls": "no such file"} {
		_, rest, _ := strings.Cut(out, "certificate "+key)
		line, _, _ := strings.Cut(rest, "\n")
		if !strings.Contains(line, want) || key == "api.tls" && strings.Contains(line, "ENDS") {
			t.Errorf("%s: %q, want %q", key, line, want)
		}
	}
}
