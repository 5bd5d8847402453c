package e2e

import (
	"fmt"
	"testing"
)

// nginxWith is a command that runs nginx with a server.
func nginxWith(server string) string {
	return fmt.Sprintf(`cat >/tmp/nginx.conf <<'END'
daemon off; user root; worker_processes 1; pid /tmp/nginx.pid; error_log /dev/stderr warn;
events {}
http {
	access_log off; client_body_temp_path /tmp/body; proxy_temp_path /tmp/proxy; fastcgi_temp_path /tmp/fastcgi;
	uwsgi_temp_path /tmp/uwsgi; scgi_temp_path /tmp/scgi;
	server { %s }
}
END
exec nginx -c /tmp/nginx.conf`, server)
}

// TestContainerThatIsAProxy has nginx send requests on to another nginx: how long it has them is known of it, and of the
// other one nothing.
func TestContainerThatIsAProxy(t *testing.T) {
	t.Parallel()
	o := shared(t)
	net := newNetwork(t)
	in := func(alias string) []string { return []string{"--network", net, "--network-alias", alias} }
	server := shell(t, "server", nginxWith(`listen 8000; location / { return 200 "here"; }`), in("server")...)
	o.knows(server)
	proxy := shell(t, "proxy", nginxWith(`listen 8080; location / { proxy_pass http://server:8000; }`), in("proxy")...)
	o.knows(proxy)
	const requests = 1000
	asking := shell(t, "client", fmt.Sprintf("sleep 1; for i in $(seq %d); do wget -q -O- http://proxy:8080/item/$i >/dev/null "+
		"|| exit 1; usleep 5000; done; echo done; sleep 3600", requests), in("client")...)
	asking.says("done")
	var matched float64
	eventually(t, func() error {
		metrics, err := o.metrics()
		if err != nil {
			return err
		}
		of := map[string]string{"name": proxy.name}
		matched = metrics.find("container_proxy_duration_seconds_count", of).sum()
		received := metrics.find("container_proxy_requests_total", of).sum()
		byName := matched - metrics.find("container_proxy_alone_requests_total", of).sum()
		// The first ones pass before it is found to be a proxy; all that follow are sent on under their own name.
		if matched == 0 || matched > requests || received != matched || byName != matched {
			return fmt.Errorf("%v of %v requests are timed, %v of them by their names", matched, received, byName)
		}
		if n := len(metrics.find("container_proxy_requests_total", map[string]string{"name": server.name})); n != 0 {
			return fmt.Errorf("the server is a proxy, too")
		}
		return nil
	})
	node := o.nodeNumbers(proxy)
	if node["proxy_p50"] <= 0 || node["proxy_p99"] < node["proxy_p50"] || node["proxy_matched_share"] != 1 {
		t.Errorf("the map says p50 %v, p99 %v, %v matched", node["proxy_p50"], node["proxy_p99"], node["proxy_matched_share"])
	}
	t.Logf("%v requests timed, p50 %.1f µs, p99 %.1f µs", matched, node["proxy_p50"]*1e6, node["proxy_p99"]*1e6)
	if _, there := o.nodeNumbers(server)["proxy_p50"]; there {
		t.Error("the map has the server for a proxy")
	}
}
