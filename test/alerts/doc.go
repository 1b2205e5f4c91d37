// Package alerts evaluates the alert rules of deploy/prometheus and the
// expressions of the Grafana dashboard with the query engine of Prometheus: on
// metrics that the nodes of a real cluster serve, and on series that make each
// alert fire. It is a separate module, because the module of Prometheus
// requires hundreds of others. "make test" runs it.
package alerts
