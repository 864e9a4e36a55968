package cli

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/cli/command"
)

func TestDoctorNetwork(t *testing.T) {
	const ended = `"mtu":1500,"running":false,"began":"2026-01-01T00:00:00Z","ended":"2026-01-01T00:00:01Z","links":3,"frames":102,"most_frames":34`
	const oneWay = `{"fault":"one-way","level":"fail","from":{"switch":"00000000000000a1","port":2},"to":{"switch":"00000000000000a2","port":3},"found":"nothing arrives","remedy":"look at the fibre"}`
	const refused = `{"fault":"rule-refused","level":"warn","from":{"switch":"00000000000000a1","port":0},"found":"no room","remedy":"make room"}`
	const path = "/api/v1/network/diagnosis"
	const switches = `[{"dpid":"00000000000000a1","name":"left"}]`
	for name, tt := range map[string]struct {
		post, get string
		code      int
		says      []string
	}{
		"sound":    {`{"number":7,"running":true}`, `{"number":7,` + ended + `,"findings":[]}`, command.ExitOK, []string{"Nothing is wrong: 3 links examined, 102 frames."}},
		"warnings": {`{"number":7,` + ended + `,"findings":[` + refused + `]}`, "", command.ExitOK, []string{"warn   rule-refused  left   no room", "-> make room"}},
		"a fault":  {`{"number":7,"running":true}`, `{"number":7,` + ended + `,"findings":[` + oneWay + `]}`, command.ExitFailed, []string{"fail   one-way  left/2 > 00000000000000a2/3  nothing arrives", "-> look at the fibre"}},
		"restart":  {`{"number":7,"running":true}`, `{"number":1,"running":true}`, command.ExitFailed, []string{"try again"}},
	} {
		t.Run(name, func(t *testing.T) {
			answers := map[string]string{"POST " + path: tt.post, "GET " + path: tt.get, "GET /api/v1/network/switches": switches}
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, answers[r.Method+" "+r.URL.Path])
			}))
			defer s.Close()
			code, out, errOut := sluice(t, "doctor", "network", "--server", s.URL)
			for _, want := range tt.says {
				if code != tt.code || !strings.Contains(out+errOut, want) {
					t.Errorf("code %d, want %d; no %q in:\n%s%s", code, tt.code, want, out, errOut)
				}
			}
		})
	}
	if code, _, errOut := sluice(t, "doctor", "network", "--mtu", "100"); code != command.ExitUsage || !strings.Contains(errOut, "576") {
		t.Errorf("--mtu 100: code %d, %s", code, errOut)
	}
}
