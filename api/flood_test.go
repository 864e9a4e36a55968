package api_test

import (
	"strings"
	"testing"
)

// Who is refused again and again fills no log, and makes no line long.
func TestRefusalsFillNoLog(t *testing.T) {
	url, _, log := start(t, withToken())
	for range 200 {
		if got := ask(t, "GET", url+"/api/v1/"+strings.Repeat("x", 8000), ""); got.status != 401 {
			t.Fatalf("status %d", got.status)
		}
	}
	if lines := strings.Count(log.String(), "\n"); lines > 40 || log.Len() > lines*1000 {
		t.Errorf("200 refusals wrote %d lines of %d bytes", lines, log.Len())
	}
}
