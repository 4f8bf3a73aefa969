-- A new connection for each request.
wrk.headers["connection"] = "close"
