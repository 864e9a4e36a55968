package testbed

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// accessLogFormat is the format of access logs. It shows which addresses the server sees.
const accessLogFormat = `$remote_addr $remote_port $server_addr $server_port $status $body_bytes_sent "$request"`

// These headers of every answer name the client that the server sees, and the requested path, so
// that a client can tell its own answer from that of another connection.
const (
	seenFromHeader = "Seen-From"
	askedHeader    = "Asked"
)

// nginxConfig returns a configuration of nginx that serves the files of a folder.
func nginxConfig(root, logs string, port uint16) string {
	return fmt.Sprintf(`daemon off;
master_process off;
pid %[2]s/nginx.pid;
error_log %[2]s/error.log;
events { worker_connections 4096; }
http {
  log_format ends '%[4]s';
  access_log %[2]s/access.log ends;
  sendfile on;
  server_tokens off;
  default_type application/octet-stream;
  add_header %[5]s $remote_addr:$remote_port;
  add_header %[6]s $args;
  client_body_temp_path %[2]s/body;
  proxy_temp_path %[2]s/proxy;
  fastcgi_temp_path %[2]s/fastcgi;
  uwsgi_temp_path %[2]s/uwsgi;
  scgi_temp_path %[2]s/scgi;
  server {
    listen %[3]d backlog=4096;
    listen [::]:%[3]d backlog=4096;
    root %[1]s;
    client_max_body_size 0;
    location /in/ {
      dav_methods PUT;
      create_full_put_path on;
    }
  }
}
`, root, logs, port, accessLogFormat, seenFromHeader, askedHeader)
}

// WebServer is nginx serving a folder.
type WebServer struct {
	*Daemon
	accessLog string
}

// StartWebServer serves the files of root. Its logs are written to a folder that must exist.
func StartWebServer(ctx context.Context, at Place, root, logs string, port uint16) (*WebServer, error) {
	file := filepath.Join(logs, "nginx.conf")
	if err := os.WriteFile(file, []byte(nginxConfig(root, logs, port)), 0o600); err != nil {
		return nil, fmt.Errorf("configure nginx: %w", err)
	}
	d, err := StartDaemon(ctx, at, filepath.Join(logs, "nginx.log"), "nginx", "-p", logs, "-e", "stderr", "-c", file)
	if err != nil {
		return nil, err
	}
	if err := WaitListening(ctx, at, port); err != nil {
		d.Stop()
		said, _ := os.ReadFile(filepath.Join(logs, "nginx.log"))
		return nil, fmt.Errorf("nginx: %w: %s", err, strings.TrimSpace(string(said)))
	}
	return &WebServer{Daemon: d, accessLog: filepath.Join(logs, "access.log")}, nil
}

// Access is one line of the server's access log.
type Access struct {
	Remote, Local string // address:port as the server saw them
	Status        int
	Bytes         int64
	Request       string
}

// Accesses reads the access log.
func (w *WebServer) Accesses() ([]Access, error) {
	text, err := os.ReadFile(w.accessLog)
	if err != nil {
		return nil, fmt.Errorf("read the server's access log: %w", err)
	}
	return parseAccessLog(string(text))
}

func parseAccessLog(text string) ([]Access, error) {
	var all []Access
	for line := range strings.Lines(text) {
		var a Access
		var remote, remotePort, local, localPort string
		if _, err := fmt.Sscanf(line, "%s %s %s %s %d %d %q", &remote, &remotePort, &local, &localPort, &a.Status, &a.Bytes, &a.Request); err != nil {
			return nil, fmt.Errorf("access log line %q: %w", line, err)
		}
		a.Remote, a.Local = remote+":"+remotePort, local+":"+localPort
		all = append(all, a)
	}
	return all, nil
}
