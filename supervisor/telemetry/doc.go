// Package telemetry is what an operator sees of a supervisor without asking it: metrics in the
// text form of Prometheus, log lines, and spans of OpenTelemetry.
//
// It promises three things. What is counted costs an addition where it happens, after the answer
// has been given, and what is a state is looked at when it is asked for. The labels of a metric are from
// closed lists, so that no caller makes series. And no secret leaves by it: metrics and spans carry
// ids, names and codes of ours and nothing that a caller or a session has written, and lines of the log pass [Redactor],
// which is the one place that takes secrets out.
//
// It stores nothing, decides nothing and asks the kernel nothing; and it is no audit: that is the
// journal's.
package telemetry
