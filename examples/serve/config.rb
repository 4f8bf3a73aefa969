# frozen_string_literal: true

# Settings for `polyphony serve`, with what else there is. They belong into config/polyphony.rb, where they are found, or
# are named: polyphony serve app.rb --config config.rb

# Where to listen. Other forms: https://HOST:PORT, unix:PATH, systemd, systemd:NAME, fd://NUMBER
bind 'http://127.0.0.1:8080'
# bind 'unix:/run/shop/web.sock', mode: 0o660
# bind 'http://0.0.0.0:8081', proxy: ['10.0.0.5'] # who may tell, by the PROXY protocol, for whom it asks

# Certificates, one for each name; the first is for those who name none. Read again upon HUP.
# tls cert: 'tls/fullchain.pem', key: 'tls/privkey.pem'
# tls :self_signed

# 0: all in one process. :auto: one worker for each processor.
workers 2
# preload false         # each worker loads the application for itself
# worker_timeout 60     # seconds without a sign of life
# boot_timeout 60
# drain_delay 5         # go on accepting for so long after /ready has begun to say no

# What a client may cost; polyphony serve --limits lists all.
limits body: 32 << 20, keep_alive: 30
limits drain_time: 20

# Logs: files, or - for standard output. USR1 opens them again.
# log 'log/error.log'
access_log '-', format: :json
# trusted_proxies '10.0.0.0/8'

# Numbers for Prometheus, and what balancers ask. metrics 'http://127.0.0.1:9394' is out of reach for others.
metrics '/metrics'
health '/health'
ready '/ready'

# early_hints true      # 103 to clients of HTTP/1.1, too
# environment 'production'
# pidfile 'tmp/polyphony.pid'
# user 'shop'
name 'example'

# What was opened before the fork is not to be shared: databases, message queues.
on_worker_start { |number| warn "worker #{number} begins" }
on_worker_stop { |number| warn "worker #{number} ends" }
