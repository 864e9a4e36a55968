package integration

import (
	"time"

	"github.com/sluice-net/sluice/lab"
)

// wan is a link that is long enough to matter and quick to fill.
var wan = lab.WANOptions{Rate: 200e6, RTT: 40 * time.Millisecond, Loss: -1}
