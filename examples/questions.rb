# frozen_string_literal: true

# A fiber that owns a table of accounts and answers questions about it. Others ask and wait: for an answer,
# for an error that is the answer, for as long as they like, or until it turns out that nobody will answer.
#   ruby -Ilib examples/questions.rb
require 'polyphony'

Request = Polyphony::Request

def bank
  accounts = Hash.new(0)
  receive_loop do |message|
    case message
    in Request(message: [:deposit, name, amount]) => request
      request.reply(accounts[name] += amount)
    in Request(message: [:withdraw, name, amount]) => request if accounts[name] < amount
      request.reject(ArgumentError, "#{name} has only #{accounts[name]}")
    in Request(message: [:withdraw, name, amount]) => request
      request.reply(accounts[name] -= amount)
    in Request(message: :audit) => request
      spin { sleep 0.05; request.reply(accounts.values.sum) } # others are served meanwhile
    in :close # told, not asked
      break
    in Request
      # heard, and left without an answer
    end
  end
end

def ask(bank, question, **options)
  puts "#{question.inspect}: #{bank.ask(question, **options)}"
rescue ArgumentError => e
  puts "#{question.inspect}: refused, #{e.message}"
rescue Request::Timeout
  puts "#{question.inspect}: no answer in time"
rescue Request::Unanswered
  puts "#{question.inspect}: the #{bank.tag} is gone"
end

teller = spin(:bank) { bank }
audit = spin { ask(teller, :audit) }
ask(teller, [:deposit, 'ann', 30])
ask(teller, [:withdraw, 'ann', 100])
ask(teller, [:withdraw, 'ann', 10])
ask(teller, 'what is the weather like?', timeout: 0.02)
audit.await
teller << :close
ask(teller, [:deposit, 'bob', 1])
